#include "server/web/embedded_route.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "server/http/content_choice.h"

namespace sheaf {
namespace {

constexpr std::string_view kHeaders =
    "x-content-type-options: nosniff\r\n"
    "referrer-policy: no-referrer\r\n"
    "cross-origin-opener-policy: same-origin\r\n"
    "cross-origin-resource-policy: same-origin\r\n"
    "vary: accept-encoding\r\n";

// The names of all but pages change with what is in them.
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
  SHEAF_CHECK(found != kTypes.end(), "{} has no type that is known", name);
  return found->second;
}

}  // namespace

Route EmbeddedRoute(std::string path, const EmbeddedFile& file, std::string_view policy) {
  return {
      .path = std::move(path),
      .methods = {HttpMethod::kGet},
      .is_public = true,
      .serve = [&file, type = TypeOf(file.name), policy, cache = file.name.ends_with(".html") ? kAskAgain : kForEver](
                   const HttpRequest& request, const ExchangePtr& exchange) {
        const bool is_compressed = AcceptsGzip(request.Header("accept-encoding"));
        // Strong: other bytes have another tag.
        const std::string etag = fmt::format("\"{}{}\"", file.digest, is_compressed ? "-gzip" : "");
        std::string headers =
            fmt::format("content-security-policy: {}\r\n{}{}etag: {}\r\n", policy, kHeaders, cache, etag);
        if (NamesTag(request.Header("if-none-match"), etag)) {
          return exchange->Answer({.status = 304, .headers = std::move(headers)});
        }
        if (is_compressed) headers += "content-encoding: gzip\r\n";
        exchange->Answer({.content_type = type,
                          .headers = std::move(headers),
                          .constant_body = is_compressed ? file.gzip : file.plain});
      }};
}

}  // namespace sheaf
