// ConnectAnswer: an answer of HTTP as what it says of a call, by the rules of the Connect protocol for unary calls.
//
//   const absl::Status status = StatusOf(answer, {.server = "https://sheaf.example.org:7434"});
//   if (status.ok()) response->ParseFromString(answer.body);
//
// What no Sheaf server says, but a proxy, a login page or another server, becomes a sentence that says who answered
// what, and what to do. Functions of values.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sheaf {

struct ConnectAnswer {
  int http_status = 0;
  // Fields of the head; empty if there were none.
  std::string content_type;
  std::string content_encoding;
  std::string location;
  std::string retry_after;
  std::string retry_pushback_ms;
  // Of an answer that is no message, its beginning.
  std::string body;
};

// Who was asked, for the sentences.
struct AskedServer {
  // Its URL.
  std::string server;
  // That of a proxy which sees the answers, as one does with http://; empty if there is none.
  std::string proxy;
  // Who names that proxy: HTTP_PROXY, for example.
  std::string proxy_variable;
};

// OK if the body is the answer's message, else the error, with the server's hint of when to ask again
// (base/retry_hint.h).
absl::Status StatusOf(const ConnectAnswer& answer, const AskedServer& asked);

// What a proxy said when it was to lead to the server, as "407 Proxy Authentication Required".
absl::Status ProxyRefusal(int http_status, const AskedServer& asked);

}  // namespace sheaf
