// Each thing that a network does to a connection, seen from its two ends. The test is both, in one thread.
#include "probe/faulty_network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>

namespace sheaf {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(5);

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool IsReadable(int fd, absl::Duration within) {
  pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, static_cast<int>(absl::ToInt64Milliseconds(within))) > 0;
}

// A client on one side of a network and the server it talks to on the other, once something has begun to go wrong.
class Line {
 public:
  explicit Line(NetworkFaults faults) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in here = Loopback(0);
    socklen_t size = sizeof here;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&here), size) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) == 0);
    auto network = FaultyNetwork::Start(fmt::format("127.0.0.1:{}", ntohs(here.sin_port)), clock_, /*seed=*/1);
    REQUIRE(network.ok());
    network_ = *std::move(network);
    // It tried whether the server is there.
    ::close(::accept(listener_, nullptr, nullptr));
    client_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const std::string& address = network_->address();
    const sockaddr_in there = Loopback(std::stoi(address.substr(address.find(':') + 1)));
    REQUIRE(::connect(client_, reinterpret_cast<const sockaddr*>(&there), sizeof there) == 0);
    server_ = ::accept(listener_, nullptr, nullptr);
    REQUIRE(server_ >= 0);
    // What was well at first.
    CHECK(Passes(client_, server_, "first"));
    if (faults.kinds.size() > 1) return;
    network_->SetFaults(faults);
    const absl::Time give_up = clock_.Now() + kSoon;
    while (network_->counts()[static_cast<size_t>(faults.kinds[0])] == 0 && clock_.Now() < give_up) {
      ::poll(nullptr, 0, 1);
    }
    REQUIRE(network_->counts()[static_cast<size_t>(faults.kinds[0])] == 1);
  }
  ~Line() {
    for (const int fd : {client_, server_, listener_}) ::close(fd);
  }

  static void Send(int fd, const std::string& text) {
    REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
  }
  // What arrives within the time, "(reset)" or "(end)" if the connection is over.
  static std::string Receive(int fd, size_t size, absl::Duration within = kSoon) {
    std::string text;
    while (text.size() < size && IsReadable(fd, within)) {
      char bytes[4096];
      const ssize_t got = ::recv(fd, bytes, std::min(sizeof bytes, size - text.size()), 0);
      if (got == 0) return text + "(end)";
      if (got < 0) return text + "(reset)";
      text.append(bytes, static_cast<size_t>(got));
    }
    return text;
  }
  static bool Passes(int from, int to, const std::string& text) {
    Send(from, text);
    return Receive(to, text.size()) == text;
  }

  int client() const { return client_; }
  int server() const { return server_; }
  FaultyNetwork& network() { return *network_; }
  const Clock& clock() const { return clock_; }

 private:
  SystemClock clock_;
  std::unique_ptr<FaultyNetwork> network_;
  int listener_ = -1;
  int client_ = -1;
  int server_ = -1;
};

// At once, and for 200 ms at most.
NetworkFaults Only(NetworkFault fault) {
  return {.calm_max = absl::Milliseconds(1), .outage_max = absl::Milliseconds(200), .kinds = {fault}};
}

TEST_CASE("A calm network passes bytes both ways, and the end of a connection") {
  Line line({});
  const std::string large(300'000, 'x');
  CHECK(Line::Passes(line.client(), line.server(), large.substr(0, 100'000)));
  CHECK(Line::Passes(line.server(), line.client(), large.substr(0, 100'000)));
  ::shutdown(line.client(), SHUT_WR);
  CHECK_THAT(Line::Receive(line.server(), 1), Catch::Contains("(") && !Catch::Contains("x"));
  for (const int64_t count : line.network().counts()) CHECK(count == 0);
}

TEST_CASE("A network that resets after a request delivers it, and loses the answer with the connection") {
  Line line(Only(NetworkFault::kResetAfterRequest));
  CHECK(Line::Passes(line.client(), line.server(), "request"));
  Line::Send(line.server(), "answer");
  CHECK(Line::Receive(line.client(), 6) == "(reset)");
  CHECK(Line::Receive(line.server(), 1) == "(reset)");
}

TEST_CASE("A black hole swallows both ways, and resets in the end") {
  Line line(Only(NetworkFault::kBlackHole));
  Line::Send(line.client(), "request");
  Line::Send(line.server(), "answer");
  CHECK(Line::Receive(line.server(), 7) == "(reset)");
  CHECK(Line::Receive(line.client(), 6) == "(reset)");
}

TEST_CASE("Of a half-open connection one end is gone, and the other hears nothing of it for a while") {
  Line line(Only(NetworkFault::kHalfOpen));
  const bool is_client_gone = IsReadable(line.client(), absl::Milliseconds(20));
  const int gone = is_client_gone ? line.client() : line.server();
  const int left = is_client_gone ? line.server() : line.client();
  CHECK(Line::Receive(gone, 1) == "(reset)");
  CHECK(Line::Receive(left, 1) == "(reset)");
}

TEST_CASE("A trickle takes its time, and loses nothing") {
  Line line({.calm_max = absl::Milliseconds(1), .outage_max = absl::Seconds(100), .kinds = {NetworkFault::kTrickle}});
  const absl::Time start = line.clock().Now();
  CHECK(Line::Passes(line.client(), line.server(), std::string(640, 'x')));
  // 20 pieces, 5 ms apart.
  CHECK(line.clock().Now() - start >= absl::Milliseconds(90));
}

TEST_CASE("A connection that is cut while idle ends in order") {
  Line line(Only(NetworkFault::kCutIdle));
  CHECK(Line::Receive(line.client(), 1) == "(end)");
  CHECK(Line::Receive(line.server(), 1) == "(end)");
}

TEST_CASE("A server that is not there is named before anything is tried") {
  SystemClock clock;
  const auto nowhere = FaultyNetwork::Start("127.0.0.1:1", clock, 1);
  CHECK(absl::IsUnavailable(nowhere.status()));
  CHECK_THAT(nowhere.status().ToString(), Catch::Contains("127.0.0.1:1"));
  CHECK(absl::IsInvalidArgument(FaultyNetwork::Start("unix:/run/sheafd.sock:", clock, 1).status()));
}

}  // namespace
}  // namespace sheaf
