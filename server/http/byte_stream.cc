#include "server/http/byte_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace sheaf {
namespace {

// What somebody hears who speaks HTTP where TLS is spoken.
constexpr std::string_view kSpeakTls =
    "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: 37\r\n\r\n"
    "this port speaks TLS: use https://...";

bool WouldWait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

int SizeOf(size_t bytes) { return static_cast<int>(std::min<size_t>(bytes, INT_MAX)); }

}  // namespace

ByteStream::ByteStream(int fd, TlsSession session) : fd_(fd), session_(std::move(session)) {
  if (session_ != nullptr) SSL_set_fd(session_.get(), fd);
}

ByteStream::Result ByteStream::Read(std::span<char> into) {
  if (session_ != nullptr) return ReadEncrypted(into);
  ssize_t count = 0;
  do {
    count = recv(fd_, into.data(), into.size(), 0);
  } while (count < 0 && errno == EINTR);
  if (count == 0) return {.outcome = Outcome::kEnd};
  if (count < 0) return {.outcome = WouldWait(errno) ? Outcome::kWaitToRead : Outcome::kBroken};
  const auto bytes = static_cast<size_t>(count);
  return {.bytes = bytes, .is_drained = bytes < into.size()};
}

ByteStream::Result ByteStream::Write(std::string_view first, std::string_view second) const {
  if (session_ != nullptr) return WriteEncrypted(first.empty() ? second : first);
  iovec parts[2] = {{.iov_base = const_cast<char*>(first.data()), .iov_len = first.size()},
                    {.iov_base = const_cast<char*>(second.data()), .iov_len = second.size()}};
  msghdr message = {};
  message.msg_iov = first.empty() ? parts + 1 : parts;
  message.msg_iovlen = first.empty() || second.empty() ? 1 : 2;
  ssize_t count = 0;
  do {
    count = sendmsg(fd_, &message, MSG_NOSIGNAL);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return {.outcome = WouldWait(errno) ? Outcome::kWaitToWrite : Outcome::kBroken};
  return {.bytes = static_cast<size_t>(count)};
}

ByteStream::Result ByteStream::ReadEncrypted(std::span<char> into) {
  // What an earlier call left behind would be taken for this one's.
  ERR_clear_error();
  const int count = SSL_read(session_.get(), into.data(), SizeOf(into.size()));
  // Behind a record OpenSSL may have read more of the socket. What is no whole record is not pending: only the socket
  // has the rest of it.
  has_pending_ = count > 0 && SSL_has_pending(session_.get()) == 1;
  if (count > 0) return {.bytes = static_cast<size_t>(count), .is_drained = !has_pending_};
  return Failure(count);
}

ByteStream::Result ByteStream::WriteEncrypted(std::string_view bytes) const {
  ERR_clear_error();
  const int count = SSL_write(session_.get(), bytes.data(), SizeOf(bytes.size()));
  if (count > 0) return {.bytes = static_cast<size_t>(count)};
  return Failure(count);
}

ByteStream::Result ByteStream::Failure(int result) const {
  switch (SSL_get_error(session_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      return {.outcome = Outcome::kWaitToRead};
    case SSL_ERROR_WANT_WRITE:
      return {.outcome = Outcome::kWaitToWrite};
    case SSL_ERROR_ZERO_RETURN:
      return {.outcome = Outcome::kEnd};
    case SSL_ERROR_SSL:
      if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_HTTP_REQUEST) {
        send(fd_, kSpeakTls.data(), kSpeakTls.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
      break;
    default:
      break;
  }
  ERR_clear_error();
  return {.outcome = Outcome::kBroken};
}

void ByteStream::EndWriting() const {
  if (session_ != nullptr) SSL_shutdown(session_.get());
  ERR_clear_error();
  shutdown(fd_, SHUT_WR);
}

std::vector<std::string> ByteStream::certificate_names() const {
  return session_ == nullptr ? std::vector<std::string>() : CertificateNames(*session_);
}

}  // namespace sheaf
