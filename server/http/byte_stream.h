// ByteStream: the bytes of a connection, there and back, without waiting. It drives the socket itself, so that it holds
// no memory while nobody has anything to say.
//
//   ByteStream stream(fd);
//   const ByteStream::Result read = stream.Read(space);
//   if (read.outcome == ByteStream::Outcome::kWaitToRead) WaitUntilReadable(stream.fd());
//
// Does not own the socket. Not thread-safe.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

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
    // Of a read: another one would wait.
    bool is_drained = false;
  };

  explicit ByteStream(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  Result Read(std::span<char> into) const;
  // Of the two, one after the other, as many as go.
  Result Write(std::string_view first, std::string_view second) const;
  // Nothing more is written: the other end reads to the end of what was.
  void EndWriting() const;

 private:
  const int fd_;
};

}  // namespace sheaf
