#include "server/web/embedded_route.h"

#include <fmt/format.h>

#include <utility>

#include "server/http/content_choice.h"
#include "server/web/file_type.h"

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

}  // namespace

Route EmbeddedRoute(std::string path, const EmbeddedFile& file, std::string_view policy) {
  return {
      .path = std::move(path),
      .methods = {HttpMethod::kGet},
      .is_public = true,
      .serve = [&file, type = FileType(file.name), policy, cache = file.name.ends_with(".html") ? kAskAgain : kForEver](
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
