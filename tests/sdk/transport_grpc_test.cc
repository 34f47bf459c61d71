#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/retry_hint.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf {
namespace {

using grpc::ByteBuffer;
using grpc::Status;
using grpc::StatusCode;

// A server that knows three methods: one answers with what it was asked, one refuses, one never answers.
class LittleServer {
 public:
  explicit LittleServer(int port = 0) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(fmt::format("127.0.0.1:{}", port), grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~LittleServer() { server_->Shutdown(std::chrono::system_clock::time_point()); }

  int port() const { return port_; }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(const std::string& method) : method_(method) {
      if (method == "/sheaf.v1.RoundService/CancelRound") {
        Finish(Status(StatusCode::FAILED_PRECONDITION, "it already ended"));
      } else if (method == "/sheaf.v1.InspectionService/GetServerInfo") {
        return;
      } else {
        StartRead(&buffer_);
      }
    }
    void OnReadDone(bool ok) override {
      if (ok) StartWriteAndFinish(&buffer_, {}, Status::OK);
    }
    void OnCancel() override { Finish(Status::CANCELLED); }
    void OnDone() override { delete this; }

   private:
    std::string method_;
    ByteBuffer buffer_;
  };

  class Service final : public grpc::CallbackGenericService {
   public:
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override {
      return new Reactor(context->method());
    }
  };

  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_CASE("A request travels by its method's name and comes back as the answer") {
  LittleServer server;
  GrpcTransport transport(server.address(), {});
  // Both messages carry bytes in field 1 or 3; an unknown field is kept, so the echo can be compared as a whole.
  v1::ReadBlobRequest request;
  request.set_digest(std::string(1'000'000, 'x'));
  absl::StatusOr<v1::ReadBlobResponse> response = BlockingCall(transport, kReadBlob, request);
  REQUIRE(response.ok());
  CHECK(response->data() == request.digest());
}

TEST_CASE("A server's refusal arrives with its code and its sentence") {
  LittleServer server;
  GrpcTransport transport(server.address(), {});
  CHECK(BlockingCall(transport, kCancelRound, {}).status() == absl::FailedPreconditionError("it already ended"));
}

TEST_CASE("A server that does not answer in time is DEADLINE_EXCEEDED") {
  LittleServer server;
  GrpcTransport transport(server.address(), {});
  absl::Status status = BlockingCall(transport, kGetServerInfo, {}, {.timeout = absl::Milliseconds(50)}).status();
  CHECK(status.code() == absl::StatusCode::kDeadlineExceeded);
}

// A server that speaks just enough HTTP/2 to give up the first call of a connection with `error`, in the test's thread.
class AbruptServer {
 public:
  AbruptServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where = {};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&where), size) == 0);
    REQUIRE(listen(listener_, 1) == 0);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &size) == 0);
    port_ = ntohs(where.sin_port);
  }
  ~AbruptServer() {
    close(listener_);
    if (connection_ >= 0) close(connection_);
  }

  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

  void ResetFirstCall(char error) {
    connection_ = accept(listener_, nullptr, nullptr);
    REQUIRE(connection_ >= 0);
    Send({kSettings, 0, 0});
    Read(kPrefaceBytes);
    // Frames before the call's own are about the connection.
    while (true) {
      const std::string header = Read(kHeaderBytes);
      const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(header[i])); };
      Read(byte(0) << 16 | byte(1) << 8 | byte(2));
      if (header[3] == kHeaders) break;
    }
    Send({kResetStream, 1, 4}, {0, 0, 0, error});
  }

 private:
  static constexpr size_t kPrefaceBytes = 24;
  static constexpr size_t kHeaderBytes = 9;
  static constexpr char kHeaders = 1;
  static constexpr char kResetStream = 3;
  static constexpr char kSettings = 4;

  struct Frame {
    char type;
    char stream;
    char size;
  };
  void Send(const Frame& frame, std::vector<char> payload = {}) {
    std::vector<char> bytes = {0, 0, frame.size, frame.type, 0, 0, 0, 0, frame.stream};
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    REQUIRE(send(connection_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
  }
  std::string Read(size_t size) {
    std::string bytes(size, '\0');
    if (size > 0) REQUIRE(recv(connection_, bytes.data(), size, MSG_WAITALL) == static_cast<ssize_t>(size));
    return bytes;
  }

  const int listener_;
  int port_ = 0;
  int connection_ = -1;
};

TEST_CASE("A call that a server gives up to calm its clients is one to try again, after a pause") {
  // ENHANCE_YOUR_CALM is what gRPC says when its memory for what is arriving is used up; CANCEL is not.
  for (const auto& [error, is_to_be_repeated] : {std::pair<char, bool>{11, true}, {8, false}}) {
    INFO("error code " << static_cast<int>(error));
    AbruptServer server;
    GrpcTransport transport(server.address(), {.own_connection = true});
    std::promise<absl::Status> promise;
    v1::GetServerInfoResponse response;
    transport.CallMethod(kGetServerInfo.name, v1::GetServerInfoRequest(), &response, {.timeout = absl::Minutes(1)},
                         [&promise](absl::Status status) { promise.set_value(std::move(status)); });
    server.ResetFirstCall(error);
    const absl::Status status = promise.get_future().get();
    INFO(status.ToString());
    CHECK_FALSE(status.ok());
    CHECK(RetryAfter(status).has_value() == is_to_be_repeated);
    if (is_to_be_repeated) CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  }
}

TEST_CASE("A server that is not there is UNAVAILABLE, and the message names its address") {
  std::string address = LittleServer().address();
  GrpcTransport transport(address, {});
  absl::Status status = BlockingCall(transport, kGetServerInfo, {}).status();
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(status.message()), Catch::Contains(address));
}

TEST_CASE("Closing a transport ends its open calls") {
  LittleServer server;
  absl::Status status;
  v1::GetServerInfoResponse response;
  {
    GrpcTransport transport(server.address(), {});
    transport.CallMethod(kGetServerInfo.name, v1::GetServerInfoRequest(), &response, {},
                         [&status](absl::Status result) { status = result; });
  }
  CHECK(status.code() == absl::StatusCode::kCancelled);
}

// Starts a server on `port` before the first pause ends.
class ServerStartingTimer final : public Timer {
 public:
  explicit ServerStartingTimer(int port) : port_(port) {}
  void After(absl::Duration delay, std::function<void()> callback) override {
    if (server_ == nullptr) server_ = std::make_unique<LittleServer>(port_);
    timer_.After(delay, std::move(callback));
  }

 private:
  const int port_;
  std::unique_ptr<LittleServer> server_;
  GrpcTimer timer_;
};

TEST_CASE("A program outlives a server that is away for a moment") {
  int port = LittleServer().port();
  ManualClock clock;
  SeededRandom random(3);
  ServerStartingTimer timer(port);
  GrpcTransport wire(fmt::format("127.0.0.1:{}", port), {});
  RetryingTransport transport(wire, timer, clock, random, {});
  v1::ReadBlobRequest request;
  request.set_digest("abc");
  absl::StatusOr<v1::ReadBlobResponse> response = BlockingCall(transport, kReadBlob, request);
  REQUIRE(response.ok());
  CHECK(response->data() == "abc");
}

}  // namespace
}  // namespace sheaf
