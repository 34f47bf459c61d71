#include "server/http/origins.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/retry_hint.h"

namespace sheaf {
namespace {

std::string_view AuthorityOf(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

}  // namespace

Origins::Verdict Origins::Judge(const HttpRequest& request) const {
  const std::string_view origin = request.Header("origin");
  if (origin.empty()) return Verdict::kOwn;
  if (std::find(listed_.begin(), listed_.end(), origin) != listed_.end()) return Verdict::kListed;
  // The scheme is the browser's side of a proxy, which may speak TLS where we do not.
  return !request.host.empty() && AuthorityOf(origin) == request.host ? Verdict::kOwn : Verdict::kForeign;
}

std::string AllowFields(std::string_view origin) {
  return fmt::format(
      "access-control-allow-origin: {}\r\naccess-control-expose-headers: {}, retry-after, etag, content-range\r\n",
      origin, kRetryHeader);
}

bool IsPreflight(const HttpRequest& request) {
  return request.method == HttpMethod::kOptions && !request.Header("origin").empty() &&
         !request.Header("access-control-request-method").empty();
}

HttpResponse PreflightAnswer(const HttpRequest& request, std::string_view methods) {
  HttpResponse response = {.status = 204};
  response.headers = fmt::format(
      "access-control-allow-methods: {}\r\n"
      "access-control-allow-headers: authorization, content-type, connect-protocol-version, connect-timeout-ms, "
      "traceparent, if-none-match, if-range, range\r\n"
      "access-control-max-age: 7200\r\n",
      methods);
  if (request.Header("access-control-request-private-network") == "true") {
    response.headers += "access-control-allow-private-network: true\r\n";
  }
  return response;
}

}  // namespace sheaf
