// What the Connect protocol says, as its specification has it (https://connectrpc.com/docs/protocol).
#include "server/http/connect_protocol.h"

#include <catch2/catch.hpp>
#include <string>

#include "base/retry_hint.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("Every code has Connect's name and its status of HTTP") {
  struct Row {
    absl::StatusCode code;
    std::string name;
    int http_status;
  };
  // The table "Error codes" of the specification.
  for (const Row& row :
       {Row{absl::StatusCode::kCancelled, "canceled", 499}, Row{absl::StatusCode::kUnknown, "unknown", 500},
        Row{absl::StatusCode::kInvalidArgument, "invalid_argument", 400},
        Row{absl::StatusCode::kDeadlineExceeded, "deadline_exceeded", 504},
        Row{absl::StatusCode::kNotFound, "not_found", 404},
        Row{absl::StatusCode::kAlreadyExists, "already_exists", 409},
        Row{absl::StatusCode::kPermissionDenied, "permission_denied", 403},
        Row{absl::StatusCode::kResourceExhausted, "resource_exhausted", 429},
        Row{absl::StatusCode::kFailedPrecondition, "failed_precondition", 400},
        Row{absl::StatusCode::kAborted, "aborted", 409}, Row{absl::StatusCode::kOutOfRange, "out_of_range", 400},
        Row{absl::StatusCode::kUnimplemented, "unimplemented", 501}, Row{absl::StatusCode::kInternal, "internal", 500},
        Row{absl::StatusCode::kUnavailable, "unavailable", 503}, Row{absl::StatusCode::kDataLoss, "data_loss", 500},
        Row{absl::StatusCode::kUnauthenticated, "unauthenticated", 401}}) {
    INFO(row.name);
    CHECK(ConnectCode(row.code) == row.name);
    CHECK(HttpStatusOf(row.code) == row.http_status);
    CHECK(ErrorResponse(absl::Status(row.code, "x")).status == row.http_status);
    CHECK(ErrorJson(absl::Status(row.code, "x")) == "{\"code\":\"" + row.name + "\",\"message\":\"x\"}");
  }
}

TEST_CASE("A retry hint is a detail of the error, and two fields of the head") {
  const absl::Status status = WithRetryAfter(absl::ResourceExhaustedError("too much"), absl::Milliseconds(1500));
  // RetryInfo {retry_delay {seconds: 1, nanos: 500000000}}, in base64 without padding.
  CHECK(
      ErrorJson(status) ==
      R"({"code":"resource_exhausted","message":"too much","details":[{"type":"google.rpc.RetryInfo","value":"CggIARCAyrXuAQ"}]})");
  CHECK_THAT(ErrorResponse(status).headers,
             Contains("retry-after: 2\r\n") && Contains("grpc-retry-pushback-ms: 1500\r\n"));
}

TEST_CASE("A message that is script, or no text at all, is a string of JSON and nothing else") {
  const std::string json = ErrorJson(absl::InvalidArgumentError("</script><b>\"\\\n\x01\xff\x7f&"));
  CHECK(json == R"({"code":"invalid_argument","message":"\u003c/script\u003e\u003cb\u003e\"\\\n\u0001?\u007f\u0026"})");
}

HttpRequest AGet(const std::string& query) {
  HttpRequest request;
  request.method = HttpMethod::kGet;
  request.query = query;
  return request;
}
HttpRequest APost(const std::string& content_type, const std::string& body) {
  HttpRequest request;
  request.method = HttpMethod::kPost;
  request.headers.Add("Content-Type", content_type);
  request.body.Append(body);
  return request;
}

TEST_CASE("A POST says by its media type how it is encoded") {
  for (const std::string type : {"application/proto", "Application/Proto", "application/proto; x=y"}) {
    HttpRequest request = APost(type, "bytes");
    ConnectRequest call;
    REQUIRE_FALSE(ReadConnectRequest(request, call).has_value());
    CHECK(call.codec == Codec::kProto);
    CHECK(call.message.view() == "bytes");
    CHECK(call.timeout == absl::InfiniteDuration());
  }
  HttpRequest json = APost("application/json; charset=utf-8", "{}");
  ConnectRequest call;
  REQUIRE_FALSE(ReadConnectRequest(json, call).has_value());
  CHECK(call.codec == Codec::kJson);
  for (const std::string type :
       {"", "text/plain", "application/connect+proto", "application/grpc-web", "application/protobuf"}) {
    INFO(type);
    HttpRequest request = APost(type, "");
    const auto error = ReadConnectRequest(request, call);
    REQUIRE(error.has_value());
    CHECK(error->http_status == 415);
  }
}

TEST_CASE("Versions, timeouts and compressions are those of the specification, or refused") {
  struct Row {
    std::string name;
    std::string value;
    absl::StatusCode code;
  };
  for (const Row& row : {Row{"connect-protocol-version", "1", absl::StatusCode::kOk},
                         Row{"connect-protocol-version", "2", absl::StatusCode::kInvalidArgument},
                         Row{"connect-timeout-ms", "0", absl::StatusCode::kOk},
                         Row{"connect-timeout-ms", "9999999999", absl::StatusCode::kOk},
                         Row{"connect-timeout-ms", "10000000000", absl::StatusCode::kInvalidArgument},
                         Row{"connect-timeout-ms", "-1", absl::StatusCode::kInvalidArgument},
                         Row{"connect-timeout-ms", "1s", absl::StatusCode::kInvalidArgument},
                         Row{"connect-timeout-ms", "1 ", absl::StatusCode::kInvalidArgument},
                         Row{"content-encoding", "identity", absl::StatusCode::kOk},
                         Row{"content-encoding", "gzip", absl::StatusCode::kUnimplemented},
                         Row{"accept-encoding", "gzip", absl::StatusCode::kOk}}) {
    INFO(row.name << ": " << row.value);
    HttpRequest request = APost("application/proto", "");
    request.headers.Add(row.name, row.value);
    ConnectRequest call;
    const auto error = ReadConnectRequest(request, call);
    CHECK((error ? error->status.code() : absl::StatusCode::kOk) == row.code);
  }
  HttpRequest request = APost("application/proto", "");
  request.headers.Add("connect-timeout-ms", "1500");
  ConnectRequest call;
  REQUIRE_FALSE(ReadConnectRequest(request, call).has_value());
  CHECK(call.timeout == absl::Milliseconds(1500));
}

TEST_CASE("A GET has its request in the query") {
  struct Row {
    std::string query;
    absl::StatusCode code;
    std::string message;
  };
  for (const Row& row : {
           Row{"connect=v1&encoding=json&message=%7B%22round%22%3A%22r-1%22%7D", absl::StatusCode::kOk,
               R"({"round":"r-1"})"},
           Row{"encoding=json&message={}", absl::StatusCode::kOk, "{}"},
           Row{"encoding=json&message=a+b", absl::StatusCode::kOk, "a b"},
           Row{"encoding=proto&base64=1&message=CgNyLTE", absl::StatusCode::kOk, "\n\x03r-1"},
           Row{"encoding=proto&base64=1&message=CgNyLTE%3D", absl::StatusCode::kOk, "\n\x03r-1"},
           Row{"encoding=proto&base64=1&message=_-8", absl::StatusCode::kOk, "\xff\xef"},
           Row{"encoding=proto&message=", absl::StatusCode::kOk, ""},
           Row{"encoding=proto&message=&compression=identity", absl::StatusCode::kOk, ""},
           Row{"encoding=proto&message=&compression=gzip", absl::StatusCode::kUnimplemented, ""},
           Row{"connect=v2&encoding=proto&message=", absl::StatusCode::kInvalidArgument, ""},
           Row{"encoding=xml&message=", absl::StatusCode::kInvalidArgument, ""},
           Row{"message=", absl::StatusCode::kInvalidArgument, ""},
           Row{"encoding=proto", absl::StatusCode::kInvalidArgument, ""},
           Row{"encoding=proto&message=%4", absl::StatusCode::kInvalidArgument, ""},
           Row{"encoding=proto&message=%zz", absl::StatusCode::kInvalidArgument, ""},
           Row{"encoding=proto&base64=1&message=***", absl::StatusCode::kInvalidArgument, ""},
           Row{"", absl::StatusCode::kInvalidArgument, ""},
       }) {
    INFO(row.query);
    HttpRequest request = AGet(row.query);
    ConnectRequest call;
    const auto error = ReadConnectRequest(request, call);
    REQUIRE((error ? error->status.code() : absl::StatusCode::kOk) == row.code);
    if (!error) CHECK(call.message.view() == row.message);
  }
}

}  // namespace
}  // namespace sheaf
