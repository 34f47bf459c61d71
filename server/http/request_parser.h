// RequestParser: the bytes of one request, as they come over a connection, to what was asked. Knows no socket.
//
//   RequestParser parser({.header_bytes_max = 16 << 10});
//   size_t taken = parser.Take(bytes);          // Of the front; what is left belongs to the next call.
//   if (parser.refusal()) Answer(*parser.refusal());
//   if (parser.has_head()) Find(parser.request());
//   if (parser.is_done()) Serve(parser.request());
//
// The grammar is Boost.Beast's. What two readers could read differently is refused, so that nobody is smuggled past a
// proxy in front of us: lengths that come twice or together with a transfer coding, any coding but "chunked", fields
// with one meaning that come twice. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/http/http_message.h"

namespace sheaf {

// Why there is no request here: an answer, after which the connection is of no more use.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

class RequestParser {
 public:
  struct Bounds {
    int64_t header_bytes_max = 16 << 10;
    int64_t headers_max = 100;
    // The most that any route takes.
    int64_t body_bytes_max = 8 << 20;
  };

  explicit RequestParser(const Bounds& bounds);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // Takes what it can use of the front of `bytes`, and says how much that was: once after the head, so that one may
  // look at it. What it did not take comes again, with more behind it.
  size_t Take(std::string_view bytes);
  // Where what comes next may be written without a copy, followed by Wrote. Empty: only Take knows what it is.
  std::span<char> Space();
  void Wrote(size_t count);

  bool has_head() const;
  bool is_done() const;
  const std::optional<HttpRefusal>& refusal() const;
  // Once it has a head; the body is whole once it is done.
  HttpRequest& request();

 private:
  class Grammar;
  std::unique_ptr<Grammar> grammar_;
};

}  // namespace sheaf
