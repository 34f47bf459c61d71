#include "server/net/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "server/net/listen_failure.h"

namespace sheaf {
namespace {

// Connections that the kernel keeps until they are taken.
constexpr int kBacklog = 1024;
// Files that connections leave to the stores, where each upload may hold one (uploads_max), and each round; a quarter
// if there are few.
constexpr int kReservedFiles = 4096 + 256;
// Connections taken before another look at whether to stop.
constexpr int kAcceptsPerTurn = 64;
// A connection that takes nothing of what is sent for so long is gone: gRPC's own value, for its own listeners.
constexpr int kUnansweredMillis = 20'000;
// Without a file, those that wait are looked at again after this long.
constexpr int kPauseMillis = 50;

// The kernel gives the lowest number that is free, so a number tells how many are taken.
int ConnectionFilesMax() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return INT32_MAX;
  const auto all = static_cast<int64_t>(std::min<rlim_t>(files.rlim_cur, INT32_MAX));
  return static_cast<int>(all - std::min<int64_t>(kReservedFiles, all / 4));
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

void SetPort(int port, sockaddr& address) {
  const auto number = htons(static_cast<uint16_t>(port));
  address.sa_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port = number
                                : reinterpret_cast<sockaddr_in&>(address).sin_port = number;
}

// A socket that listens there, or -1, with errno.
int ListenOn(const addrinfo& where) {
  const int fd = socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  // A server that was restarted gets its port back at once.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  // Connections inherit it: an answer does not wait for more to send.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnansweredMillis, sizeof kUnansweredMillis);
  if (bind(fd, where.ai_addr, where.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string port_text = colon == std::string::npos ? "" : listen.substr(colon + 1);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port_text.c_str(), &hints, &found) != 0) return ExplainListenFailure(listen);
  std::vector<int> sockets;
  int port = 0;
  for (addrinfo* where = found; where != nullptr; where = where->ai_next) {
    // All on one port, also if the kernel chose it.
    if (port != 0) SetPort(port, *where->ai_addr);
    const int fd = ListenOn(*where);
    // A host may have addresses that this machine does not serve; but half of one that another server has is none.
    if (fd < 0 && errno == EADDRINUSE) {
      for (const int socket : std::exchange(sockets, {})) close(socket);
      break;
    }
    if (fd < 0) continue;
    sockets.push_back(fd);
    port = PortOf(fd);
  }
  freeaddrinfo(found);
  if (sockets.empty()) return ExplainListenFailure(listen);
  const int stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (stop_event < 0) {
    for (const int socket : sockets) close(socket);
    return absl::UnavailableError(fmt::format("cannot listen on {}: {}", listen, std::strerror(errno)));
  }
  return std::unique_ptr<Listener>(
      new Listener(std::move(sockets), stop_event, fmt::format("{}:{}", listen.substr(0, colon), port)));
}

Listener::~Listener() { Stop(); }

void Listener::Start(std::function<void(int fd)> take) {
  thread_ = std::thread([this, take = std::move(take)] { Run(take); });
}

void Listener::Stop() {
  if (stop_event_ < 0) return;
  if (thread_.joinable()) {
    const uint64_t count = 1;
    const ssize_t done = write(stop_event_, &count, sizeof count);
    static_cast<void>(done);
    thread_.join();
  }
  for (const int socket : sockets_) close(socket);
  sockets_.clear();
  close(std::exchange(stop_event_, -1));
}

void Listener::Run(const std::function<void(int fd)>& take) {
  std::vector<pollfd> waiting;
  for (const int socket : sockets_) waiting.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  pollfd stop = {.fd = stop_event_, .events = POLLIN, .revents = 0};
  waiting.push_back(stop);
  while (true) {
    poll(waiting.data(), waiting.size(), -1);
    if (waiting.back().revents != 0) return;
    bool has_files = true;
    for (const int socket : sockets_) has_files = Accept(socket, take) && has_files;
    if (has_files) continue;
    poll(&stop, 1, kPauseMillis);
    if (stop.revents != 0) return;
  }
}

bool Listener::Accept(int socket, const std::function<void(int fd)>& take) {
  const int fd_max = ConnectionFilesMax();
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    const int fd = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    const bool has_no_file = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    // Nobody waits, or whoever did is gone.
    if (fd < 0 && !has_no_file) return true;
    if (fd >= 0 && fd < fd_max) {
      is_full_ = false;
      take(fd);
      continue;
    }
    if (fd >= 0) close(fd);
    // Said once.
    if (!std::exchange(is_full_, true)) {
      LogWarning(
          "{} files are open, and the stores need the rest: new connections are closed until there are fewer; "
          "raise the limit of open files (LimitNOFILE)",
          fd_max);
    }
    if (has_no_file) return false;
  }
  return true;
}

}  // namespace sheaf
