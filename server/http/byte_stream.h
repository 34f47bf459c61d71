// ByteStream: the bytes of a connection, there and back, without waiting; encrypted, if it has a session of TLS. It
// drives the socket itself, and so does OpenSSL, so that it holds no buffers while nobody has anything to say.
//
//   ByteStream stream(fd, context.NewSession());
//   const ByteStream::Result read = stream.Read(space);      // Shakes hands first.
//   if (read.outcome == ByteStream::Outcome::kWaitToRead) WaitUntilReadable(fd);
//
// Does not own the socket. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/tls_context.h"

namespace sheaf {

class ByteStream {
 public:
  enum class Outcome {
    kDone,
    // Call again, with the same, when the socket can be read from, or written to.
    kWaitToRead,
    kWaitToWrite,
    // The other end has nothing more to send; it may still read.
    kEnd,
    kBroken,
  };
  struct Result {
    Outcome outcome = Outcome::kDone;
    size_t bytes = 0;
    // Of a read: another one would wait, unless the socket becomes readable.
    bool is_drained = false;
  };

  // Null: in the clear.
  ByteStream(int fd, TlsSession session);

  bool is_encrypted() const { return session_ != nullptr; }
  Result Read(std::span<char> into);
  // Whether it has something to read that the socket has not any more.
  bool HasPending() const { return has_pending_; }
  // Of the two, one after the other, as many as go.
  Result Write(std::string_view first, std::string_view second) const;
  // Nothing more is written: the other end reads to the end of what was.
  void EndWriting() const;
  // Of the client's certificate.
  std::vector<std::string> certificate_names() const;

 private:
  Result ReadEncrypted(std::span<char> into);
  Result WriteEncrypted(std::string_view bytes) const;
  Result Failure(int result) const;

  const int fd_;
  const TlsSession session_;
  bool has_pending_ = false;
};

}  // namespace sheaf
