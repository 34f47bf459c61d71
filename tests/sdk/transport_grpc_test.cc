#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "base/retry_hint.h"
#include "sdk/cpp/client/grpc_transport.h"

namespace sheaf {
namespace {

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
    // So does a server that stops, before its client has heard of that: another one takes the call.
    if (!is_to_be_repeated) CHECK(status.code() == absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace sheaf
