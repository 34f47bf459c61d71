// RouteTable: what the HTTP port answers, one row for each path.
//
//   const RouteTable routes({
//       {.path = "/healthz", .methods = {HttpMethod::kGet}, .serve = [](const HttpRequest&, const ExchangePtr&
//       exchange) {
//          exchange->Answer({.content_type = "text/plain", .body = "ok\n"});
//        }},
//   });
//   const Route* route = routes.Find("/healthz");
//
// A route runs in a loop's thread, beside thousands of others: what takes long it hands to the CallPool, or to the core
// as a call. Nothing changes the table once it is made, so that it is thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "server/http/exchange.h"
#include "server/http/http_message.h"

namespace sheaf {

using ExchangePtr = std::shared_ptr<HttpExchange>;

struct Route {
  // All of it; or its beginning, if it ends with "/" and is not "/" itself.
  std::string path;
  // Whoever takes GET takes HEAD: it is answered with the head of the same answer.
  std::vector<HttpMethod> methods;
  // Of a request's body. 0: it has none.
  int64_t body_bytes_max = 0;
  // Without tokens the whole server is for this machine only, and a page of another site must not reach it by a name
  // that its owner lets stand for 127.0.0.1. A route that says nothing of anybody's need not care.
  bool is_public = false;
  // Asked before a body is waited for; an error is the answer. Null: no question.
  std::function<absl::Status(const HttpRequest& head, const HttpExchange& exchange)> check_head;
  // The request lasts until it returns; its body may be taken from it.
  std::function<void(HttpRequest& request, const ExchangePtr& exchange)> serve;

  bool Takes(HttpMethod method) const;
  // The field `allow`: "GET, HEAD".
  std::string Allow() const;
};

class RouteTable {
 public:
  // CHECKs that no two have the same path.
  explicit RouteTable(std::vector<Route> routes);
  // Others hold rows of it.
  RouteTable(const RouteTable&) = delete;
  RouteTable& operator=(const RouteTable&) = delete;

  // Null if there is none.
  const Route* Find(std::string_view path) const;

 private:
  const std::vector<Route> routes_;
  std::unordered_map<std::string_view, const Route*> by_path_;
  // Bytes of the longest path.
  size_t longest_ = 0;
};

}  // namespace sheaf
