#include "server/http/byte_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>

namespace sheaf {
namespace {

bool WouldWait(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

ByteStream::Result ByteStream::Read(std::span<char> into) const {
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

void ByteStream::EndWriting() const { shutdown(fd_, SHUT_WR); }

}  // namespace sheaf
