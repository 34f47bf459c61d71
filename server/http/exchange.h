// HttpExchange: one request, and the answer that is to come. A connection makes one of it at a time.
//
//   void ServeHealth(const HttpRequest& request, const std::shared_ptr<HttpExchange>& exchange) {
//     exchange->Answer({.content_type = "text/plain", .body = "ok\n"});
//   }
//
// A route answers now, or keeps the exchange and answers later, from any thread, once; a long body piece by piece.
// Watch is for within the loop's thread: where the route is called, and on_sent.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/http/http_message.h"

namespace sheaf {

class HttpExchange {
 public:
  enum class End { kGone, kExpired };

  virtual ~HttpExchange() = default;

  // "ipv4:192.0.2.1:4711"
  virtual const std::string& peer() const = 0;
  // Of the certificate that the client showed and that was checked; none without one.
  virtual std::vector<std::string> certificate_names() const = 0;
  virtual absl::Time Now() const = 0;

  // Calls `on_end`, in the loop's thread: with kGone, once, if the client has gone before it has the answer; with
  // kExpired, before that, if there is no answer at `until`.
  virtual void Watch(absl::Time until, std::function<void(End)> on_end) = 0;
  // `on_sent` is called in the loop's thread when the client has the answer, or never will. Then nobody is watched any
  // more.
  virtual void Answer(HttpResponse response, std::function<void()> on_sent = nullptr) = 0;
  // More of a body that the answer promised, once what went before was sent; never more than was promised.
  virtual void AnswerMore(std::string piece, std::function<void()> on_sent) = 0;
  // There is no more, though it was promised: the connection ends. `on_ended` is called as on_sent is.
  virtual void BreakOff(std::function<void()> on_ended) = 0;
  // In the loop's thread: somebody may still take what is answered.
  virtual bool is_open() const = 0;
  // What ends the connection if this exchange is still under way when it is called, from any thread.
  virtual std::function<void()> Cut() = 0;
};

}  // namespace sheaf
