#include "tests/sdk/little_http_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "base/check.h"

namespace sheaf {

std::string LittleHttpServer::Request::Header(std::string_view name) const {
  for (size_t begin = head.find("\r\n"); begin != std::string::npos; begin = head.find("\r\n", begin + 2)) {
    const std::string line = head.substr(begin + 2, head.find("\r\n", begin + 2) - begin - 2);
    const size_t colon = line.find(':');
    if (colon == std::string::npos || absl::AsciiStrToLower(line.substr(0, colon)) != name) continue;
    return std::string(absl::StripAsciiWhitespace(line.substr(colon + 1)));
  }
  return "";
}

bool LittleHttpServer::Peer::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

bool LittleHttpServer::Peer::Answer(std::string_view status, std::string_view content_type, std::string_view body,
                                    std::string_view fields) {
  return Send(fmt::format("HTTP/1.1 {}\r\ncontent-type: {}\r\ncontent-length: {}\r\n{}\r\n{}", status, content_type,
                          body.size(), fields, body));
}

void LittleHttpServer::Peer::WaitForEnd() {
  char bytes[4096];
  while (::recv(fd_, bytes, sizeof bytes, 0) > 0) {
  }
  is_over_ = true;
}

LittleHttpServer::LittleHttpServer(Handler handler, int port, bool reads_body)
    : handler_(std::move(handler)),
      reads_body_(reads_body),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int yes = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<uint16_t>(port));
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  SHEAF_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&where), size) == 0, "no port for a test's server");
  SHEAF_CHECK(::listen(listener_, 100) == 0, "a test's server cannot listen");
  ::getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &size);
  port_ = ntohs(where.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

LittleHttpServer::~LittleHttpServer() {
  is_over_ = true;
  // Wakes whoever waits.
  ::shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  {
    MutexLock lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

std::string LittleHttpServer::address() const { return fmt::format("http://127.0.0.1:{}", port_); }

void LittleHttpServer::Accept() {
  while (true) {
    const int fd = ::accept(listener_, nullptr, nullptr);
    if (fd < 0 || is_over_) {
      if (fd >= 0) ::close(fd);
      return;
    }
    ++num_connections_;
    {
      MutexLock lock(mutex_);
      open_.push_back(fd);
    }
    threads_.emplace_back([this, fd] { Serve(fd); });
  }
}

void LittleHttpServer::Serve(int fd) {
  Peer peer(fd);
  std::string buffer;
  for (Request request; !is_over_ && !peer.is_over() && Read(fd, buffer, request); request = {})
    handler_(request, peer);
  MutexLock lock(mutex_);
  open_.remove(fd);
  ::close(fd);
}

bool LittleHttpServer::Read(int fd, std::string& buffer, Request& request) const {
  const auto more = [fd, &buffer] {
    char bytes[65536];
    const ssize_t count = ::recv(fd, bytes, sizeof bytes, 0);
    if (count > 0) buffer.append(bytes, static_cast<size_t>(count));
    return count > 0;
  };
  size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
    if (!more()) return false;
  }
  request.head = buffer.substr(0, end + 2);
  buffer.erase(0, end + 4);
  if (!reads_body_) return true;
  const std::string length = request.Header("content-length");
  const size_t size = length.empty() ? 0 : std::stoul(length);
  while (buffer.size() < size) {
    if (!more()) return false;
  }
  request.body = buffer.substr(0, size);
  buffer.erase(0, size);
  return true;
}

}  // namespace sheaf
