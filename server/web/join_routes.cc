#include "server/web/join_routes.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "server/http/content_choice.h"
#include "server/web/embedded_file.h"
#include "server/web/embedded_route.h"
#include "server/web/file_type.h"

namespace sheaf {
namespace {

// The page runs our scripts and the owner's, in a thread too, and WebAssembly: nothing inline and nothing from
// elsewhere.
constexpr std::string_view kJoinPolicy =
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
// The name stays while what is in the file may change: it is asked for again.
constexpr std::string_view kJoinFileHeaders =
    "cache-control: no-cache\r\nx-content-type-options: nosniff\r\ncross-origin-resource-policy: same-origin\r\n";

}  // namespace

std::vector<Route> JoinRoutes(const JoinFiles* files) {
  std::vector<Route> routes;
  for (const EmbeddedFile& file : JoinPageFiles()) {
    routes.push_back(
        EmbeddedRoute(file.name == "join.html" ? "/join" : fmt::format("/ui/{}", file.name), file, kJoinPolicy));
  }
  if (files == nullptr) return routes;
  for (const JoinFiles::File& file : files->all()) {
    routes.push_back(
        {.path = "/join/files/" + file.name,
         .methods = {HttpMethod::kGet},
         .serve = [&file, type = FileType(file.name)](const HttpRequest& request, const ExchangePtr& exchange) {
           const std::string etag = fmt::format("\"{}\"", file.digest);
           std::string headers = fmt::format("{}etag: {}\r\n", kJoinFileHeaders, etag);
           if (NamesTag(request.Header("if-none-match"), etag)) {
             return exchange->Answer({.status = 304, .headers = std::move(headers)});
           }
           exchange->Answer({.content_type = type, .headers = std::move(headers), .constant_body = file.bytes});
         }});
  }
  return routes;
}

}  // namespace sheaf
