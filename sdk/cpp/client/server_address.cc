#include "sdk/cpp/client/server_address.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Names of how gRPC finds a server, which no host has before its port.
constexpr auto kGrpcSchemes = std::to_array<std::string_view>({"dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:"});

constexpr char kForms[] = "write HOST:PORT for gRPC, or http://HOST:PORT or https://HOST:PORT for HTTP/1.1";

absl::Status Wrong(std::string_view text, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("\"{}\" is no address of a server: {}; {}", text, what, kForms));
}

bool IsPort(std::string_view text) {
  return !text.empty() && text.size() <= 5 && std::all_of(text.begin(), text.end(), absl::ascii_isdigit) &&
         std::stoi(std::string(text)) < (1 << 16);
}

absl::StatusOr<ServerAddress> ParseTarget(std::string_view text) {
  for (const std::string_view scheme : kGrpcSchemes) {
    if (text.starts_with(scheme) && text.size() > scheme.size()) return ServerAddress{.host = std::string(text)};
  }
  if (const size_t end = text.find("://"); end != std::string_view::npos) {
    return Wrong(text, fmt::format("{}:// is neither http:// nor https://", text.substr(0, end)));
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Wrong(text, "it has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.empty()) return Wrong(text, "it has no host");
  if (!IsPort(port)) return Wrong(text, fmt::format("\"{}\" is no port", port));
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return Wrong(text, "an address of IPv6 stands in brackets, as in [::1]:7433");
  }
  return ServerAddress{.host = std::string(host), .port = std::string(port)};
}

// A part of a URL as curl gives it.
struct UrlPart {
  UrlPart() = default;
  UrlPart(const UrlPart&) = delete;
  UrlPart& operator=(const UrlPart&) = delete;
  ~UrlPart() { curl_free(text); }
  char* text = nullptr;
};

struct UrlCleanup {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

absl::StatusOr<ServerAddress> ParseUrl(std::string_view text) {
  const std::unique_ptr<CURLU, UrlCleanup> url(curl_url());
  if (const CURLUcode error = curl_url_set(url.get(), CURLUPART_URL, std::string(text).c_str(), 0);
      error != CURLUE_OK) {
    return Wrong(text, curl_url_strerror(error));
  }
  const auto part = [&url](CURLUPart which) {
    UrlPart found;
    const CURLUcode error = curl_url_get(url.get(), which, &found.text, CURLU_DEFAULT_PORT);
    return error == CURLUE_OK ? std::string(found.text) : std::string();
  };
  if (!part(CURLUPART_USER).empty() || !part(CURLUPART_PASSWORD).empty()) {
    return Wrong(text.substr(0, text.find("://") + 3),
                 "it has a user or a password, which a server does not take: a token is shown with --token-file");
  }
  if (!part(CURLUPART_QUERY).empty() || !part(CURLUPART_FRAGMENT).empty()) {
    return Wrong(text, "it has a \"?\" or a \"#\"");
  }
  ServerAddress address = {
      .protocol = part(CURLUPART_SCHEME) == "https" ? ServerAddress::Protocol::kHttps : ServerAddress::Protocol::kHttp,
      .host = absl::AsciiStrToLower(part(CURLUPART_HOST)),
      .port = part(CURLUPART_PORT),
      .path = part(CURLUPART_PATH)};
  if (address.host.starts_with('[')) address.host = address.host.substr(1, address.host.size() - 2);
  while (address.path.ends_with('/')) address.path.pop_back();
  return address;
}

}  // namespace

std::string ServerAddress::target() const {
  if (port.empty()) return host;
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string ServerAddress::url() const {
  return fmt::format("{}://{}{}", protocol == Protocol::kHttps ? "https" : "http", target(), path);
}

bool ServerAddress::is_loopback() const {
  if (port.empty()) return host.starts_with("unix:") || host.starts_with("unix-abstract:");
  if (host == "localhost") return true;
  // Not a name that begins so: anybody may have one.
  in_addr four = {};
  if (inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
  in6_addr six = {};
  return inet_pton(AF_INET6, host.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

absl::StatusOr<ServerAddress> ParseServerAddress(std::string_view text) {
  const bool is_url = absl::StartsWithIgnoreCase({text.data(), text.size()}, "http://") ||
                      absl::StartsWithIgnoreCase({text.data(), text.size()}, "https://");
  return is_url ? ParseUrl(text) : ParseTarget(text);
}

bool IsLoopback(std::string_view address) {
  const absl::StatusOr<ServerAddress> parsed = ParseServerAddress(address);
  return parsed.ok() && parsed->is_loopback();
}

}  // namespace sheaf
