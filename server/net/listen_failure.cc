#include "server/net/listen_failure.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace sheaf {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList Resolve(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) found = nullptr;
  return {found, freeaddrinfo};
}

// The errno of binding and listening; 0 if it works now.
int TryListen(const addrinfo& address) {
  const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int yes = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool works = bind(fd, address.ai_addr, address.ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = works ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status ExplainListenFailure(const std::string& address) {
  const AddressList list = Resolve(address);
  if (list == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("cannot listen on {}: it is not HOST:PORT of this machine; correct --listen", address));
  }
  switch (const int error = TryListen(*list)) {
    case 0:
    case EADDRINUSE:
      return absl::UnavailableError(fmt::format(
          "cannot listen on {}: the port is in use; choose another with --listen or stop the other server", address));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(
          fmt::format("cannot listen on {}: this machine has no such address; correct --listen", address));
    case EACCES:
      return absl::PermissionDeniedError(
          fmt::format("cannot listen on {}: ports below 1024 need privileges; choose another with --listen", address));
    default:
      return absl::InvalidArgumentError(
          fmt::format("cannot listen on {}: {}; correct --listen", address, std::strerror(error)));
  }
}

}  // namespace sheaf
