// What every transport does, over each wire that there is.
#include <fmt/format.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/retry_hint.h"
#include "sdk/cpp/client/grpc_transport.h"
#include "sdk/cpp/client/open_transport.h"
#include "tests/sdk/little_http_server.h"
#include "tests/wait_until.h"

namespace sheaf {
namespace {

using grpc::ByteBuffer;
using grpc::Status;
using grpc::StatusCode;

// A server that knows three methods: one answers with what it was asked, one refuses, one never answers.
class EchoServer {
 public:
  virtual ~EchoServer() = default;
  virtual int port() const = 0;
  virtual std::string address() const = 0;
};

class GrpcEchoServer final : public EchoServer {
 public:
  explicit GrpcEchoServer(int port) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(fmt::format("127.0.0.1:{}", port), grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcEchoServer() override { server_->Shutdown(std::chrono::system_clock::time_point()); }

  int port() const override { return port_; }
  std::string address() const override { return fmt::format("127.0.0.1:{}", port_); }

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

class HttpEchoServer final : public EchoServer {
 public:
  explicit HttpEchoServer(int port) : server_(Serve, port) {}

  int port() const override { return server_.port(); }
  std::string address() const override { return server_.address(); }

 private:
  static void Serve(const LittleHttpServer::Request& request, LittleHttpServer::Peer& peer) {
    if (request.head.starts_with("POST /sheaf.v1.RoundService/CancelRound ")) {
      peer.Answer("400 Bad Request", "application/json",
                  R"({"code":"failed_precondition","message":"it already ended"})");
    } else if (request.head.starts_with("POST /sheaf.v1.InspectionService/GetServerInfo ")) {
      peer.WaitForEnd();
    } else {
      peer.Answer("200 OK", "application/proto", request.body);
    }
  }

  LittleHttpServer server_;
};

struct Wire {
  std::string name;
  // `port` 0: a free one.
  std::function<std::unique_ptr<EchoServer>(int port)> start;
};

std::vector<Wire> Wires() {
  return {{"gRPC", [](int port) { return std::make_unique<GrpcEchoServer>(port); }},
          {"HTTP", [](int port) { return std::make_unique<HttpEchoServer>(port); }}};
}

TEST_CASE("A request travels by its method's name and comes back as the answer") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    const auto transport = OpenTransport(server->address(), {});
    // Both messages carry bytes in field 1 or 3; an unknown field is kept, so the echo can be compared as a whole.
    v1::ReadBlobRequest request;
    for (const size_t size : {0, 1, 1'000'000, 60'000'000}) {
      request.set_digest(std::string(size, 'x'));
      absl::StatusOr<v1::ReadBlobResponse> response = BlockingCall(*transport, kReadBlob, request);
      INFO(response.status().ToString());
      REQUIRE(response.ok());
      CHECK(response->data() == request.digest());
    }
    CHECK(transport->address() == server->address());
  }
}

TEST_CASE("What is larger than one call may be is refused, on the way there and back") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    v1::ReadBlobRequest request;
    request.set_digest(std::string(200'000, 'x'));
    const auto careful = OpenTransport(server->address(), {.message_bytes_max = 100'000, .own_connection = true});
    const absl::Status status = BlockingCall(*careful, kReadBlob, request).status();
    CHECK(status.code() == absl::StatusCode::kResourceExhausted);
    CHECK_THAT(std::string(status.message()), Catch::Contains("too much for one call"));
  }
}

TEST_CASE("Many calls of many threads at a time are each answered, once") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    const auto transport = OpenTransport(server->address(), {.own_connection = true, .connections_max = 8});
    constexpr int kCalls = 500;
    std::atomic<int> num_right = 0;
    std::atomic<int> num_done = 0;
    for (int i = 0; i < kCalls; ++i) {
      v1::ReadBlobRequest request;
      request.set_digest(std::to_string(i));
      Call(*transport, kReadBlob, request, {}, [&, i](absl::StatusOr<v1::ReadBlobResponse> response) {
        num_right += response.ok() && response->data() == std::to_string(i) ? 1 : 0;
        ++num_done;
      });
    }
    WaitUntil("all are done", absl::Seconds(20), [&] { return num_done == kCalls; });
    CHECK(num_right == kCalls);
  }
}

TEST_CASE("A `done` may make the next call") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    const auto transport = OpenTransport(server->address(), {});
    std::atomic<int> num_left = 100;
    std::function<void(absl::StatusOr<v1::ReadBlobResponse>)> next =
        [&](absl::StatusOr<v1::ReadBlobResponse> response) {
          if (!response.ok() || --num_left == 0) return;
          Call(*transport, kReadBlob, v1::ReadBlobRequest(), {}, next);
        };
    Call(*transport, kReadBlob, v1::ReadBlobRequest(), {}, next);
    WaitUntil("all are done", absl::Seconds(20), [&] { return num_left == 0; });
  }
}

TEST_CASE("A server's refusal arrives with its code and its sentence") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    const auto transport = OpenTransport(server->address(), {});
    CHECK(BlockingCall(*transport, kCancelRound, {}).status() == absl::FailedPreconditionError("it already ended"));
  }
}

TEST_CASE("A server that does not answer in time is DEADLINE_EXCEEDED") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    const auto transport = OpenTransport(server->address(), {});
    absl::Status status = BlockingCall(*transport, kGetServerInfo, {}, {.timeout = absl::Milliseconds(50)}).status();
    CHECK(status == absl::DeadlineExceededError("Deadline Exceeded"));
    CHECK(BlockingCall(*transport, kReadBlob, {}, {.timeout = absl::Seconds(30)}).ok());
  }
}

TEST_CASE("A call may have all the time there is") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    const auto transport = OpenTransport(server->address(), {});
    CHECK(BlockingCall(*transport, kReadBlob, {}, {.timeout = absl::InfiniteDuration()}).ok());
  }
}

TEST_CASE("A server that is not there is UNAVAILABLE, and the message names its address") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    std::string address = wire.start(0)->address();
    const auto transport = OpenTransport(address, {});
    absl::Status status = BlockingCall(*transport, kGetServerInfo, {}).status();
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(status.message()), Catch::Contains(address) && Catch::Contains("Connection refused"));
  }
}

TEST_CASE("Closing a transport ends its open calls") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    const auto server = wire.start(0);
    absl::Status status;
    v1::GetServerInfoResponse response;
    {
      const auto transport = OpenTransport(server->address(), {});
      transport->CallMethod(kGetServerInfo.name, v1::GetServerInfoRequest(), &response, {},
                            [&status](absl::Status result) { status = result; });
    }
    CHECK(status.code() == absl::StatusCode::kCancelled);
  }
}

TEST_CASE("An address that is none fails each call, and says why") {
  const auto transport = OpenTransport("htps://edge", {});
  const absl::Status status = BlockingCall(*transport, kGetServerInfo, {}).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains("htps://"));
}

// Starts a server on `port` before the first pause ends.
class ServerStartingTimer final : public Timer {
 public:
  ServerStartingTimer(const Wire& wire, int port) : wire_(wire), port_(port) {}
  void After(absl::Duration delay, std::function<void()> callback) override {
    if (server_ == nullptr) server_ = wire_.start(port_);
    timer_.After(delay, std::move(callback));
  }

 private:
  const Wire& wire_;
  const int port_;
  std::unique_ptr<EchoServer> server_;
  GrpcTimer timer_;
};

TEST_CASE("A program outlives a server that is away for a moment") {
  for (const Wire& wire : Wires()) {
    INFO(wire.name);
    auto server = wire.start(0);
    const int port = server->port();
    const std::string address = server->address();
    server.reset();
    ManualClock clock;
    SeededRandom random(3);
    ServerStartingTimer timer(wire, port);
    const auto connection = OpenTransport(address, {});
    RetryingTransport transport(*connection, timer, clock, random, {});
    v1::ReadBlobRequest request;
    request.set_digest("abc");
    absl::StatusOr<v1::ReadBlobResponse> response = BlockingCall(transport, kReadBlob, request);
    REQUIRE(response.ok());
    CHECK(response->data() == "abc");
  }
}

}  // namespace
}  // namespace sheaf
