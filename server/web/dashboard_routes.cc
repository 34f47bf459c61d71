#include "server/web/dashboard_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "server/http/content_choice.h"
#include "server/web/embedded_file.h"

namespace sheaf {
namespace {

constexpr std::string_view kPage = "index.html";

// A page runs our scripts and nothing else, also where a name or a text that it shows would be one: nothing inline, no
// string becomes markup, nothing from elsewhere, and no calls but to this server. No page of others has it in a frame.
constexpr std::string_view kHeaders =
    "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types "
    "'none'\r\n"
    "x-content-type-options: nosniff\r\n"
    "referrer-policy: no-referrer\r\n"
    "cross-origin-opener-policy: same-origin\r\n"
    "cross-origin-resource-policy: same-origin\r\n"
    "vary: accept-encoding\r\n";

// The page is asked for again; the names of all others change with what is in them.
constexpr std::string_view kAskAgain = "cache-control: no-cache\r\n";
constexpr std::string_view kForEver = "cache-control: public, max-age=31536000, immutable\r\n";

constexpr auto kTypes = std::to_array<std::pair<std::string_view, std::string_view>>({
    {".css", "text/css; charset=utf-8"},
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
});

std::string_view TypeOf(std::string_view name) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& row) { return name.ends_with(row.first); });
  SHEAF_CHECK(found != kTypes.end(), "web/built has {}, of no type that is known", name);
  return found->second;
}

Route RouteOf(const EmbeddedFile& file) {
  const bool is_page = file.name == kPage;
  return {.path = is_page ? "/" : fmt::format("/ui/{}", file.name),
          .methods = {HttpMethod::kGet},
          .is_public = true,
          .serve = [&file, type = TypeOf(file.name), cache = is_page ? kAskAgain : kForEver](
                       const HttpRequest& request, const ExchangePtr& exchange) {
            const bool is_compressed = AcceptsGzip(request.Header("accept-encoding"));
            // Strong: other bytes have another tag.
            const std::string etag = fmt::format("\"{}{}\"", file.digest, is_compressed ? "-gzip" : "");
            std::string headers = fmt::format("{}{}etag: {}\r\n", kHeaders, cache, etag);
            if (NamesTag(request.Header("if-none-match"), etag)) {
              return exchange->Answer({.status = 304, .headers = std::move(headers)});
            }
            if (is_compressed) headers += "content-encoding: gzip\r\n";
            exchange->Answer({.content_type = type,
                              .headers = std::move(headers),
                              .constant_body = is_compressed ? file.gzip : file.plain});
          }};
}

}  // namespace

std::vector<Route> DashboardRoutes() {
  std::vector<Route> routes;
  for (const EmbeddedFile& file : DashboardFiles()) routes.push_back(RouteOf(file));
  return routes;
}

}  // namespace sheaf
