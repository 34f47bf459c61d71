#include "server/http/connect_protocol.h"

#include <fmt/format.h>
#include <google/protobuf/duration.pb.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/escaping.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "server/http/json_text.h"

namespace sheaf {
namespace {

struct CodeRow {
  absl::StatusCode code;
  std::string_view name;
  int http_status;
};
constexpr auto kCodes = std::to_array<CodeRow>({
    {absl::StatusCode::kCancelled, "canceled", 499},
    {absl::StatusCode::kUnknown, "unknown", 500},
    {absl::StatusCode::kInvalidArgument, "invalid_argument", 400},
    {absl::StatusCode::kDeadlineExceeded, "deadline_exceeded", 504},
    {absl::StatusCode::kNotFound, "not_found", 404},
    {absl::StatusCode::kAlreadyExists, "already_exists", 409},
    {absl::StatusCode::kPermissionDenied, "permission_denied", 403},
    {absl::StatusCode::kResourceExhausted, "resource_exhausted", 429},
    {absl::StatusCode::kFailedPrecondition, "failed_precondition", 400},
    {absl::StatusCode::kAborted, "aborted", 409},
    {absl::StatusCode::kOutOfRange, "out_of_range", 400},
    {absl::StatusCode::kUnimplemented, "unimplemented", 501},
    {absl::StatusCode::kInternal, "internal", 500},
    {absl::StatusCode::kUnavailable, "unavailable", 503},
    {absl::StatusCode::kDataLoss, "data_loss", 500},
    {absl::StatusCode::kUnauthenticated, "unauthenticated", 401},
});

const CodeRow& RowOf(absl::StatusCode code) {
  const auto found = std::find_if(kCodes.begin(), kCodes.end(), [&](const CodeRow& row) { return row.code == code; });
  return found == kCodes.end() ? kCodes[1] : *found;
}

// google.rpc.RetryInfo {google.protobuf.Duration retry_delay = 1}, in base64 without padding.
std::string RetryInfo(absl::Duration pause) {
  google::protobuf::Duration delay;
  delay.set_seconds(absl::IDivDuration(pause, absl::Seconds(1), &pause));
  delay.set_nanos(static_cast<int>(absl::ToInt64Nanoseconds(pause)));
  const std::string bytes = delay.SerializeAsString();
  std::string base64;
  // Of field 1, a message; it has less than 128 bytes.
  absl::Base64Escape(std::string{'\x0a', static_cast<char>(bytes.size())} + bytes, &base64);
  base64.erase(std::min(base64.find('='), base64.size()));
  return base64;
}

// The text before any parameters, in lower case.
std::string MediaType(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (content_type.ends_with(' ')) content_type.remove_suffix(1);
  std::string type(content_type);
  for (char& c : type) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return type;
}

absl::StatusOr<absl::Duration> ReadTimeout(std::string_view text) {
  int64_t millis = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), millis);
  if (error != std::errc() || end != text.data() + text.size() || text.size() > 10 || millis < 0) {
    return absl::InvalidArgumentError("connect-timeout-ms is a number of milliseconds, of at most ten digits");
  }
  return absl::Milliseconds(millis);
}

absl::StatusOr<std::string> Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    uint8_t byte = 0;
    const char* digits = text.data() + i + 1;
    if (i + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
      return absl::InvalidArgumentError("the query has a % without two hexadecimal digits behind it");
    }
    plain += static_cast<char>(byte);
    i += 2;
  }
  return plain;
}

ConnectError Fail(absl::Status status, int http_status = 0) {
  return {.status = std::move(status), .http_status = http_status};
}

std::optional<ConnectError> ReadGet(const HttpRequest& request, ConnectRequest& call) {
  std::string encoding;
  std::string message;
  bool is_base64 = false;
  bool has_message = false;
  std::string_view rest = request.query;
  while (!rest.empty()) {
    const std::string_view parameter = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(parameter.size() + 1, rest.size()));
    const size_t equals = std::min(parameter.find('='), parameter.size());
    const std::string_view name = parameter.substr(0, equals);
    absl::StatusOr<std::string> unescaped = Unescape(parameter.substr(std::min(equals + 1, parameter.size())));
    if (!unescaped.ok()) return Fail(unescaped.status());
    std::string value = *std::move(unescaped);
    if (name == "connect" && value != "v1") {
      return Fail(absl::InvalidArgumentError("this server speaks version v1 of the Connect protocol"));
    }
    if (name == "compression" && !value.empty() && value != "identity") {
      return Fail(
          absl::UnimplementedError("this server takes no compressed requests: the only compression is identity"));
    }
    if (name == "base64") is_base64 = value == "1";
    if (name == "encoding") {
      encoding = std::move(value);
    } else if (name == "message") {
      has_message = true;
      message = std::move(value);
    }
  }
  if (encoding != "proto" && encoding != "json") {
    return Fail(
        absl::InvalidArgumentError("a GET says in its query how its message is encoded: encoding=json or proto"), 415);
  }
  if (!has_message) return Fail(absl::InvalidArgumentError("a GET has its request in the query: message=..."));
  call.codec = encoding == "json" ? Codec::kJson : Codec::kProto;
  std::string bytes;
  if (!is_base64) {
    bytes = std::move(message);
  } else if (!absl::WebSafeBase64Unescape(message, &bytes)) {
    return Fail(absl::InvalidArgumentError("the query's message is not base64 in the alphabet for URLs"));
  }
  call.message.Append(bytes);
  return std::nullopt;
}

}  // namespace

std::string_view ConnectCode(absl::StatusCode code) { return RowOf(code).name; }
int HttpStatusOf(absl::StatusCode code) { return RowOf(code).http_status; }

std::string ErrorJson(const absl::Status& status) {
  std::string json = fmt::format(R"({{"code":"{}","message":{})", ConnectCode(status.code()),
                                 JsonString({status.message().data(), status.message().size()}));
  if (const std::optional<absl::Duration> pause = RetryAfter(status)) {
    fmt::format_to(std::back_inserter(json), R"(,"details":[{{"type":"google.rpc.RetryInfo","value":"{}"}}])",
                   RetryInfo(*pause));
  }
  json += '}';
  return json;
}

HttpResponse ErrorResponse(const absl::Status& status) {
  HttpResponse response = {.status = HttpStatusOf(status.code()),
                           .content_type = ContentTypeOf(Codec::kJson),
                           .headers = "cache-control: no-store\r\nx-content-type-options: nosniff\r\n",
                           .body = ErrorJson(status)};
  if (const std::optional<absl::Duration> pause = RetryAfter(status)) {
    fmt::format_to(std::back_inserter(response.headers), "retry-after: {}\r\n{}: {}\r\n",
                   absl::ToInt64Seconds(absl::Ceil(*pause, absl::Seconds(1))), kRetryHeader, RetryHeaderValue(*pause));
  }
  if (absl::IsUnauthenticated(status)) response.headers += "www-authenticate: Bearer\r\n";
  return response;
}

HttpResponse ErrorResponse(const absl::Status& status, int http_status) {
  HttpResponse response = ErrorResponse(status);
  response.status = http_status;
  return response;
}

std::string_view ContentTypeOf(Codec codec) {
  return codec == Codec::kProto ? "application/proto" : "application/json";
}

std::optional<ConnectError> ReadConnectRequest(HttpRequest& request, ConnectRequest& call) {
  if (const std::string_view version = request.Header("connect-protocol-version"); !version.empty() && version != "1") {
    return Fail(absl::InvalidArgumentError("this server speaks version 1 of the Connect protocol"));
  }
  if (const std::string_view timeout = request.Header("connect-timeout-ms"); !timeout.empty()) {
    const absl::StatusOr<absl::Duration> read = ReadTimeout(timeout);
    if (!read.ok()) return Fail(read.status());
    call.timeout = *read;
  }
  if (request.method != HttpMethod::kPost) return ReadGet(request, call);
  const std::string type = MediaType(request.Header("content-type"));
  if (type != ContentTypeOf(Codec::kProto) && type != ContentTypeOf(Codec::kJson)) {
    return Fail(absl::InvalidArgumentError("a call's content-type is application/proto or application/json"), 415);
  }
  // Tensors hardly compress, and what is small on the wire must not be large behind it.
  if (const std::string_view coding = request.Header("content-encoding"); !coding.empty() && coding != "identity") {
    return Fail(
        absl::UnimplementedError("this server takes no compressed requests: the only content-encoding is identity"));
  }
  call.codec = type == ContentTypeOf(Codec::kJson) ? Codec::kJson : Codec::kProto;
  call.message = std::move(request.body);
  return std::nullopt;
}

}  // namespace sheaf
