// UnreadCalls: gRPC calls whose answers are never taken. The client gives the server no room to send any (HTTP/2's flow
// control), so that it costs a socket, and what was asked for stays with the server.
//
//   UnreadCalls calls(server.address());
//   calls.Call("sheaf.v1.WorkService/Sync", request.SerializeAsString());
//
// They last as long as the object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tests/server/raw_connection.h"

namespace sheaf {

// Of one frame of HTTP/2.
inline std::string FrameHeader(size_t size, char type, char flags, uint32_t stream) {
  std::string header = {static_cast<char>(size >> 16 & 0xff), static_cast<char>(size >> 8 & 0xff),
                        static_cast<char>(size & 0xff), type, flags};
  for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(stream >> shift & 0xff);
  return header;
}

// A call's whole HEADERS frame, in HPACK's plainest form. Its request is yet to come.
inline std::string HeadersFrame(std::string_view path, uint32_t stream) {
  const auto field = [](std::string_view name, std::string_view value) {
    const auto text = [](std::string_view bytes) { return static_cast<char>(bytes.size()) + std::string(bytes); };
    return std::string(1, '\0') + text(name) + text(value);
  };
  const std::string block = field(":method", "POST") + field(":scheme", "http") + field(":path", path) +
                            field(":authority", "a") + field("te", "trailers") +
                            field("content-type", "application/grpc");
  // HEADERS, END_HEADERS.
  return FrameHeader(block.size(), 1, 4, stream) + block;
}

class UnreadCalls {
 public:
  explicit UnreadCalls(const std::string& address) : connection_(address) {
    connection_.Send(kHttp2Preface);
    // SETTINGS: INITIAL_WINDOW_SIZE = 0.
    connection_.Send(FrameHeader(6, 4, 0, 0) + std::string("\0\4\0\0\0\0", 6));
  }

  // `method` as "package.Service/Method". 1000 on one connection.
  void Call(std::string_view method, std::string_view request) {
    const uint32_t stream = Begin(method);
    std::string message(1, '\0');
    for (int shift = 24; shift >= 0; shift -= 8) message += static_cast<char>(request.size() >> shift & 0xff);
    message += request;
    // DATA, END_STREAM.
    connection_.Send(FrameHeader(message.size(), 0, 1, stream) + message);
  }
  // A stream that is open, and nothing in it.
  uint32_t Begin(std::string_view method) {
    const uint32_t stream = next_stream_;
    next_stream_ += 2;
    connection_.Send(HeadersFrame("/" + std::string(method), stream));
    return stream;
  }

  // How many of them the server has reset. (Its frames are read, but they make no room for answers.)
  int NumReset() {
    received_ += connection_.Receive();
    size_t frame = 0;
    while (received_.size() - frame >= 9) {
      const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(received_[frame + i])); };
      const size_t end = frame + 9 + (byte(0) << 16 | byte(1) << 8 | byte(2));
      if (end > received_.size()) break;
      // RST_STREAM.
      if (byte(3) == 3) ++num_reset_;
      frame = end;
    }
    received_.erase(0, frame);
    return num_reset_;
  }

 private:
  RawConnection connection_;
  std::string received_;
  int num_reset_ = 0;
  uint32_t next_stream_ = 1;
};

}  // namespace sheaf
