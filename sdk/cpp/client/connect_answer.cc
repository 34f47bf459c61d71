#include "sdk/cpp/client/connect_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/time/time.h"
#include "base/retry_hint.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "sdk/cpp/client/transport_errors.h"

namespace sheaf {
namespace {

using nlohmann::json;

constexpr auto kCodes = std::to_array<std::pair<std::string_view, absl::StatusCode>>({
    {"canceled", absl::StatusCode::kCancelled},
    {"unknown", absl::StatusCode::kUnknown},
    {"invalid_argument", absl::StatusCode::kInvalidArgument},
    {"deadline_exceeded", absl::StatusCode::kDeadlineExceeded},
    {"not_found", absl::StatusCode::kNotFound},
    {"already_exists", absl::StatusCode::kAlreadyExists},
    {"permission_denied", absl::StatusCode::kPermissionDenied},
    {"resource_exhausted", absl::StatusCode::kResourceExhausted},
    {"failed_precondition", absl::StatusCode::kFailedPrecondition},
    {"aborted", absl::StatusCode::kAborted},
    {"out_of_range", absl::StatusCode::kOutOfRange},
    {"unimplemented", absl::StatusCode::kUnimplemented},
    {"internal", absl::StatusCode::kInternal},
    {"unavailable", absl::StatusCode::kUnavailable},
    {"data_loss", absl::StatusCode::kDataLoss},
    {"unauthenticated", absl::StatusCode::kUnauthenticated},
});

// What people call those that they are likely to see.
constexpr auto kReasons = std::to_array<std::pair<int, std::string_view>>({
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {407, "Proxy Authentication Required"},
    {408, "Request Timeout"},
    {413, "Content Too Large"},
    {421, "Misdirected Request"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
});

constexpr size_t kExcerptBytesMax = 200;

std::string Numbered(int http_status) {
  const auto* found =
      std::find_if(kReasons.begin(), kReasons.end(), [&](const auto& row) { return row.first == http_status; });
  return found == kReasons.end() ? std::to_string(http_status) : fmt::format("{} {}", http_status, found->second);
}

// One line of it that harms no terminal.
std::string Excerpt(std::string_view text) {
  std::string excerpt(text.substr(0, std::min(kExcerptBytesMax, text.find_first_of("\r\n"))));
  std::replace_if(
      excerpt.begin(), excerpt.end(), [](char c) { return !absl::ascii_isprint(c); }, '?');
  return excerpt;
}

std::string MediaType(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  return absl::AsciiStrToLower(absl::StripAsciiWhitespace({type.data(), type.size()}));
}

// Of a detail google.rpc.RetryInfo {google.protobuf.Duration retry_delay = 1}, whose value is base64.
std::optional<absl::Duration> RetryDelay(const json& detail) {
  if (!detail.is_object() || detail.value("type", json()) != "google.rpc.RetryInfo") return std::nullopt;
  const json value = detail.value("value", json());
  std::string bytes;
  if (!value.is_string() || !absl::Base64Unescape(value.get<std::string>(), &bytes)) return std::nullopt;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  google::protobuf::Duration delay;
  constexpr uint32_t kField = 1 << 3 | 2;
  int size = 0;
  if (stream.ReadTag() != kField || !stream.ReadVarintSizeAsInt(&size) || size != static_cast<int>(bytes.size()) - 2 ||
      !delay.ParseFromCodedStream(&stream) || delay.seconds() < 0 || delay.nanos() < 0) {
    return std::nullopt;
  }
  return absl::Seconds(delay.seconds()) + absl::Nanoseconds(delay.nanos());
}

// The server's word on when to ask again: its own header, else a detail of its error, else what any proxy may say.
absl::Status WithHint(absl::Status status, const ConnectAnswer& answer, const json& error) {
  if (!answer.retry_pushback_ms.empty()) return WithRetryHeader(std::move(status), answer.retry_pushback_ms);
  const json details = error.is_object() ? error.value("details", json::array()) : json::array();
  for (const json& detail : details) {
    if (const std::optional<absl::Duration> delay = RetryDelay(detail)) {
      return WithRetryAfter(std::move(status), *delay);
    }
  }
  int64_t seconds = 0;
  const std::string& text = answer.retry_after;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_number = problem == std::errc() && end == text.data() + text.size() && seconds >= 0;
  return is_number ? WithRetryAfter(std::move(status), absl::Seconds(seconds)) : status;
}

// The codes that Connect infers from a status which says no error of its own.
absl::StatusCode InferredCode(int http_status) {
  switch (http_status) {
    case 400:
      return absl::StatusCode::kInternal;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kUnimplemented;
    // With a status of its own Connect would have it unknown; whoever asks a proxy without its secret never got
    // further.
    case 407:
    case 429:
    case 502:
    case 503:
    case 504:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kUnknown;
  }
}

std::string Advice(const ConnectAnswer& answer, const AskedServer& asked) {
  const int status = answer.http_status;
  if (status >= 300 && status < 400) {
    return fmt::format("it sends callers to {}: give that address, if it is the server's",
                       answer.location.empty() ? "nowhere" : Excerpt(answer.location));
  }
  switch (status) {
    case 401:
    case 403:
      return "what answers is no Sheaf server, but stands in front of it: ask whoever runs it to let calls through";
    case 404:
    case 405:
      return "no Sheaf server is there: check the host, the port (that of sheafd --http) and the path of the address";
    case 407:
      return fmt::format("give the proxy's user and password in {}, as http://USER:PASSWORD@HOST:PORT",
                         asked.proxy_variable.empty() ? "HTTPS_PROXY" : asked.proxy_variable);
    case 413:
      return "something in front of the server takes no requests of this size: have its limit raised to 8 MiB";
    case 426:
    case 505:
      return "what answers does not speak HTTP/1.1: give the port of sheafd --http";
    case 502:
    case 503:
    case 504:
      return "what stands in front of the server did not get an answer from it: is the server up?";
    default:
      return "what answers is no Sheaf server: check the address, and what stands in front of the server";
  }
}

// An answer that no Sheaf server gives.
absl::Status ForeignAnswer(const ConnectAnswer& answer, const AskedServer& asked) {
  const std::string who =
      asked.proxy.empty() ? asked.server : fmt::format("{}, or the proxy {} before it,", asked.server, asked.proxy);
  const std::string excerpt = MediaType(answer.content_type) == "text/plain" && !answer.body.empty()
                                  ? fmt::format(" (\"{}\")", Excerpt(answer.body))
                                  : "";
  const std::string what =
      fmt::format("{} answered {}{}; {}", who, Numbered(answer.http_status), excerpt, Advice(answer, asked));
  const absl::StatusCode code = InferredCode(answer.http_status);
  const absl::Status status =
      code == absl::StatusCode::kUnavailable ? Unreachable(asked.server, what) : absl::Status(code, what);
  return WithHint(status, answer, json());
}

}  // namespace

absl::Status ProxyRefusal(int http_status, const AskedServer& asked) {
  const std::string advice = http_status == 407 ? Advice({.http_status = http_status}, asked)
                                                : "it does not lead there: ask whoever runs it to allow CONNECT to "
                                                  "this host and port, or leave it out with NO_PROXY";
  return Unreachable(asked.server,
                     fmt::format("the proxy {} answered {}; {}", asked.proxy, Numbered(http_status), advice));
}

absl::Status StatusOf(const ConnectAnswer& answer, const AskedServer& asked) {
  const std::string type = MediaType(answer.content_type);
  const std::string encoding = absl::AsciiStrToLower(answer.content_encoding);
  if (!encoding.empty() && encoding != "identity") {
    return absl::InternalError(
        fmt::format("{} answered in the content-encoding \"{}\", which nobody asked for: have what stands in front of "
                    "the server pass "
                    "answers on as they are",
                    asked.server, Excerpt(encoding)));
  }
  if (answer.http_status == 200) {
    if (type == "application/proto") return absl::OkStatus();
    return absl::UnknownError(
        fmt::format("{} answered with \"{}\" in place of a message: no Sheaf server is there, or something on the way "
                    "answers for it, such as a login page; open the address in a browser",
                    asked.server, Excerpt(answer.content_type)));
  }
  if (type != "application/json") return ForeignAnswer(answer, asked);
  const json error = json::parse(answer.body, nullptr, false);
  if (!error.is_object() || !error.contains("code") || !error["code"].is_string()) return ForeignAnswer(answer, asked);
  const auto* found = std::find_if(kCodes.begin(), kCodes.end(), [&](const auto& row) {
    return row.first == error["code"].get_ref<const std::string&>();
  });
  if (found == kCodes.end()) return ForeignAnswer(answer, asked);
  const json said = error.value("message", json());
  const std::string message = said.is_string() ? said.get<std::string>() : "";
  const absl::Status status = found->second == absl::StatusCode::kUnavailable ? Unreachable(asked.server, message)
                                                                              : absl::Status(found->second, message);
  return WithHint(status, answer, error);
}

}  // namespace sheaf
