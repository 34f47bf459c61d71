// RawConnection: a connection to a server of this machine, from which the test sends what bytes it likes.
//
//   RawConnection connection(server.address());
//   connection.Send(kHttp2Preface);
//   connection.Send(kEmptySettings);
//   CHECK(!connection.IsOver());
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace sheaf {

// What an HTTP/2 client says first.
constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Length 0, type SETTINGS.
constexpr std::string_view kEmptySettings("\0\0\0\4\0\0\0\0\0", 9);
// A HEADERS frame that announces 100 bytes and is never finished.
constexpr std::string_view kHalfHeaders("\0\0\x64\1\4\0\0\0\1\x82", 10);

class RawConnection {
 public:
  // Does not wait until it is there: the kernel keeps what is sent.
  explicit RawConnection(const std::string& address) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    static_cast<void>(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to));
  }
  RawConnection(RawConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawConnection() {
    if (fd_ >= 0) ::close(fd_);
  }
  void Send(std::string_view bytes) { ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  // What has come so far.
  std::string Receive() {
    std::string received;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::recv(fd_, bytes, sizeof bytes, 0)) > 0;) {
      received.append(bytes, static_cast<size_t>(count));
    }
    return received;
  }
  // The server has hung up. What it said is dropped.
  bool IsOver() {
    char bytes[4096];
    for (;;) {
      const ssize_t count = ::recv(fd_, bytes, sizeof bytes, 0);
      if (count == 0) return true;
      if (count < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
    }
  }

 private:
  int fd_;
};

}  // namespace sheaf
