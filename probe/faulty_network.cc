#include "probe/faulty_network.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>
#include <vector>

#include "base/random.h"

namespace sheaf {
namespace {

constexpr absl::Duration kTrickleEvery = absl::Milliseconds(5);
constexpr size_t kTrickleBytes = 32;
// A connection is idle when nothing passed for this long.
constexpr absl::Duration kIdle = absl::Milliseconds(50);
// What one side has not taken yet, before the other is read no more.
constexpr size_t kPendingBytesMax = 1 << 20;

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() { Close(); }

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void Close() {
    if (is_open()) ::close(std::exchange(fd_, -1));
  }
  // The other side gets a reset.
  void Reset() {
    if (!is_open()) return;
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    Close();
  }

 private:
  int fd_;
};

void SendAtOnce(int fd) {
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

// The first address of `target` that can be connected to.
absl::StatusOr<Address> Resolve(const std::string& target) {
  const size_t colon = target.rfind(':');
  if (colon == std::string::npos || colon + 1 == target.size()) {
    return absl::InvalidArgumentError(
        fmt::format("the faulty network goes to a server by TCP, and \"{}\" is not HOST:PORT", target));
  }
  std::string host = target.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), target.substr(colon + 1).c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(fmt::format("{} cannot be found: {}; check --server", target, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    const Socket socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.fd(), one->ai_addr, one->ai_addrlen) == 0) {
      Address address{.size = one->ai_addrlen};
      std::memcpy(&address.bytes, one->ai_addr, one->ai_addrlen);
      return address;
    }
    error = errno;
  }
  return absl::UnavailableError(fmt::format("the server at {} cannot be reached: {}", target, std::strerror(error)));
}

}  // namespace

std::string_view NetworkFaultName(NetworkFault fault) {
  switch (fault) {
    case NetworkFault::kBlackHole:
      return "black hole";
    case NetworkFault::kHalfOpen:
      return "half open";
    case NetworkFault::kResetAfterRequest:
      return "reset after request";
    case NetworkFault::kTrickle:
      return "trickle";
    case NetworkFault::kCutIdle:
      return "cut while idle";
  }
  return "unknown";
}

// The thread's own side: the sockets, and what happens to them.
class FaultyNetwork::Proxy {
 public:
  Proxy(FaultyNetwork& network, Address target, Socket listener, const Clock& clock, uint64_t seed)
      : network_(network), target_(target), listener_(std::move(listener)), clock_(clock), random_(seed) {}

  void Run() {
    while (TakeOrders()) {
      std::vector<pollfd> polls = {{.fd = network_.wake_fd_, .events = POLLIN, .revents = 0},
                                   {.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
      absl::Duration wait = absl::Seconds(1);
      const absl::Time before = clock_.Now();
      for (const Connection& connection : connections_) {
        polls.push_back({.fd = connection.client.socket.fd(),
                         .events = EventsOf(connection, connection.client, connection.server),
                         .revents = 0});
        polls.push_back({.fd = connection.server.socket.fd(),
                         .events = EventsOf(connection, connection.server, connection.client),
                         .revents = 0});
        wait = std::min(wait, NextStep(connection) - before);
      }
      const int timeout_ms = static_cast<int>(
          absl::ToInt64Milliseconds(absl::Ceil(std::max(wait, absl::ZeroDuration()), absl::Milliseconds(1))));
      ::poll(polls.data(), polls.size(), timeout_ms);
      const absl::Time now = clock_.Now();
      size_t next = 2;
      for (auto it = connections_.begin(); it != connections_.end(); next += 2) {
        Move(*it, polls[next].revents, polls[next + 1].revents, now);
        it = it->client.socket.is_open() || it->server.socket.is_open() ? std::next(it) : connections_.erase(it);
      }
      if ((polls[1].revents & POLLIN) != 0) Accept(now);
    }
  }

 private:
  struct End {
    Socket socket;
    // Read from the other end, not yet taken by this one.
    std::string pending;
  };
  struct Connection {
    End client;
    End server;
    NetworkFault fault = NetworkFault::kTrickle;
    absl::Time fault_start = absl::InfiniteFuture();
    absl::Time fault_end = absl::InfiniteFuture();
    bool has_begun = false;
    // Something went to the server since it last said anything.
    bool is_asked = false;
    absl::Time last_traffic;
    absl::Time next_trickle;
  };

  // False when the thread shall end.
  bool TakeOrders() {
    uint64_t count = 0;
    const bool was_woken = ::read(network_.wake_fd_, &count, sizeof count) > 0;
    MutexLock lock(network_.mutex_);
    if (was_woken && version_ != network_.faults_version_) {
      version_ = network_.faults_version_;
      faults_ = network_.faults_;
      for (Connection& connection : connections_) {
        if (!connection.has_begun) Destine(connection, clock_.Now());
      }
    }
    return !network_.is_stopping_;
  }

  void Destine(Connection& connection, absl::Time now) {
    connection.has_begun = false;
    connection.fault = faults_.kinds[random_.Below(faults_.kinds.size())];
    connection.fault_start = connection.fault_end = absl::InfiniteFuture();
    if (faults_.calm_max == absl::InfiniteDuration()) return;
    connection.fault_start = now + random_.Between(absl::ZeroDuration(), faults_.calm_max);
    connection.fault_end = connection.fault_start + random_.Between(absl::ZeroDuration(), faults_.outage_max);
  }

  bool Is(const Connection& connection, NetworkFault fault) const {
    return connection.has_begun && connection.fault == fault;
  }
  bool Swallows(const Connection& connection) const {
    return Is(connection, NetworkFault::kBlackHole) || Is(connection, NetworkFault::kHalfOpen);
  }

  short EventsOf(const Connection& connection, const End& here, const End& there) const {
    short events = there.pending.size() < kPendingBytesMax ? POLLIN : 0;
    if (!here.pending.empty() && !Is(connection, NetworkFault::kTrickle)) events |= POLLOUT;
    return events;
  }

  absl::Time NextStep(const Connection& connection) const {
    if (!connection.has_begun) return connection.fault_start;
    switch (connection.fault) {
      case NetworkFault::kResetAfterRequest:
        return absl::InfiniteFuture();
      case NetworkFault::kCutIdle:
        return connection.last_traffic + kIdle;
      case NetworkFault::kTrickle:
        return connection.client.pending.empty() && connection.server.pending.empty() ? connection.fault_end
                                                                                      : connection.next_trickle;
      default:
        return connection.fault_end;
    }
  }

  void Accept(absl::Time now) {
    Socket client(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client.is_open()) return;
    Socket server(::socket(target_.bytes.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (::connect(server.fd(), reinterpret_cast<const sockaddr*>(&target_.bytes), target_.size) != 0 &&
        errno != EINPROGRESS) {
      return client.Reset();
    }
    SendAtOnce(client.fd());
    SendAtOnce(server.fd());
    Connection& connection = connections_.emplace_back();
    connection.client.socket = std::move(client);
    connection.server.socket = std::move(server);
    connection.last_traffic = now;
    Destine(connection, now);
  }

  void Move(Connection& connection, short client_events, short server_events, absl::Time now) {
    if (!connection.has_begun && connection.fault_start <= now) Begin(connection);
    constexpr short kReadable = POLLIN | POLLHUP | POLLERR;
    if ((client_events & kReadable) != 0 && !Read(connection, true, now)) return Break(connection);
    if ((server_events & kReadable) != 0 && !Read(connection, false, now)) return Break(connection);
    if (connection.has_begun && !Advance(connection, now)) return;
    const size_t most = Is(connection, NetworkFault::kTrickle) ? kTrickleBytes : kPendingBytesMax;
    if (most == kTrickleBytes) {
      if (now < connection.next_trickle) return;
      connection.next_trickle = now + kTrickleEvery;
    }
    if (!Write(connection.client, most) || !Write(connection.server, most)) Break(connection);
  }

  void Begin(Connection& connection) {
    connection.has_begun = true;
    // Which of the two ends is gone.
    if (connection.fault == NetworkFault::kHalfOpen) {
      (random_.Chance(0.5) ? connection.client : connection.server).socket.Reset();
    }
    MutexLock lock(network_.mutex_);
    ++network_.counts_[static_cast<size_t>(connection.fault)];
  }

  // What the passing of time does to a connection that a fault has hit. False if it has ended.
  bool Advance(Connection& connection, absl::Time now) {
    if (connection.fault == NetworkFault::kCutIdle) {
      if (now < connection.last_traffic + kIdle) return true;
      connection.client.socket.Close();
      connection.server.socket.Close();
      return false;
    }
    if (connection.fault == NetworkFault::kResetAfterRequest || now < connection.fault_end) return true;
    if (connection.fault == NetworkFault::kTrickle) {
      Destine(connection, now);
      return true;
    }
    Break(connection);
    return false;
  }

  void Break(Connection& connection) {
    connection.client.socket.Reset();
    connection.server.socket.Reset();
  }

  // False if this end is closed, or the answer is to be lost with the connection.
  bool Read(Connection& connection, bool is_client, absl::Time now) {
    End& here = is_client ? connection.client : connection.server;
    End& there = is_client ? connection.server : connection.client;
    if (!here.socket.is_open()) return true;
    char bytes[1 << 14];
    const ssize_t size = ::recv(here.socket.fd(), bytes, sizeof bytes, 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (size <= 0) {
      // Who is left of a connection with a hole in it does not hear that the other one has gone.
      if (!Swallows(connection)) return false;
      here.socket.Close();
      return true;
    }
    connection.last_traffic = now;
    if (Swallows(connection)) return true;
    if (!is_client && connection.is_asked && Is(connection, NetworkFault::kResetAfterRequest)) return false;
    connection.is_asked = is_client;
    there.pending.append(bytes, static_cast<size_t>(size));
    return true;
  }

  // False if this end takes no more.
  bool Write(End& end, size_t most) {
    if (end.pending.empty() || !end.socket.is_open()) return true;
    const ssize_t size = ::send(end.socket.fd(), end.pending.data(), std::min(most, end.pending.size()), MSG_NOSIGNAL);
    if (size < 0) return errno == EAGAIN || errno == EINTR || errno == ENOTCONN;
    end.pending.erase(0, static_cast<size_t>(size));
    return true;
  }

  FaultyNetwork& network_;
  const Address target_;
  const Socket listener_;
  const Clock& clock_;
  SeededRandom random_;
  NetworkFaults faults_;
  int64_t version_ = 0;
  std::list<Connection> connections_;
};

absl::StatusOr<std::unique_ptr<FaultyNetwork>> FaultyNetwork::Start(const std::string& target, const Clock& clock,
                                                                    uint64_t seed) {
  const absl::StatusOr<Address> resolved = Resolve(target);
  if (!resolved.ok()) return resolved.status();
  Socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof here;
  auto network = std::unique_ptr<FaultyNetwork>(new FaultyNetwork());
  network->wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (network->wake_fd_ < 0 || ::bind(listener.fd(), reinterpret_cast<sockaddr*>(&here), size) != 0 ||
      ::listen(listener.fd(), 128) != 0 ||
      ::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&here), &size) != 0) {
    return absl::UnavailableError(
        fmt::format("no port of this machine for the faulty network: {}", std::strerror(errno)));
  }
  network->address_ = fmt::format("127.0.0.1:{}", ntohs(here.sin_port));
  network->proxy_ = std::make_unique<Proxy>(*network, *resolved, std::move(listener), clock, seed);
  network->thread_ = std::thread([proxy = network->proxy_.get()] { proxy->Run(); });
  return network;
}

FaultyNetwork::~FaultyNetwork() {
  if (thread_.joinable()) {
    {
      MutexLock lock(mutex_);
      is_stopping_ = true;
    }
    ::eventfd_write(wake_fd_, 1);
    thread_.join();
  }
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

void FaultyNetwork::SetFaults(const NetworkFaults& faults) {
  {
    MutexLock lock(mutex_);
    faults_ = faults;
    ++faults_version_;
  }
  ::eventfd_write(wake_fd_, 1);
}

std::array<int64_t, kNumNetworkFaults> FaultyNetwork::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

}  // namespace sheaf
