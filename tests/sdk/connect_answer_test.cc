#include "sdk/cpp/client/connect_answer.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "absl/time/time.h"
#include "base/retry_hint.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

const AskedServer kAsked = {.server = "https://edge:1", .proxy = "", .proxy_variable = ""};
const AskedServer kByProxy = {.server = "http://edge:1", .proxy = "http://proxy:3128", .proxy_variable = "HTTP_PROXY"};

ConnectAnswer AnError(int http_status, std::string body) {
  return {.http_status = http_status, .content_type = "application/json", .body = std::move(body)};
}

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

TEST_CASE("Each code of Connect is the code of the call, whatever its status of HTTP") {
  struct Row {
    std::string name;
    absl::StatusCode code;
  };
  for (const Row& row :
       {Row{"canceled", absl::StatusCode::kCancelled}, Row{"unknown", absl::StatusCode::kUnknown},
        Row{"invalid_argument", absl::StatusCode::kInvalidArgument},
        Row{"deadline_exceeded", absl::StatusCode::kDeadlineExceeded}, Row{"not_found", absl::StatusCode::kNotFound},
        Row{"already_exists", absl::StatusCode::kAlreadyExists},
        Row{"permission_denied", absl::StatusCode::kPermissionDenied},
        Row{"resource_exhausted", absl::StatusCode::kResourceExhausted},
        Row{"failed_precondition", absl::StatusCode::kFailedPrecondition}, Row{"aborted", absl::StatusCode::kAborted},
        Row{"out_of_range", absl::StatusCode::kOutOfRange}, Row{"unimplemented", absl::StatusCode::kUnimplemented},
        Row{"internal", absl::StatusCode::kInternal}, Row{"data_loss", absl::StatusCode::kDataLoss},
        Row{"unauthenticated", absl::StatusCode::kUnauthenticated}}) {
    const absl::Status status =
        StatusOf(AnError(418, fmt::format(R"({{"code":"{}","message":"so"}})", row.name)), kAsked);
    CHECK(status == absl::Status(row.code, "so"));
  }
  CHECK(StatusOf(AnError(503, R"({"code":"unavailable","message":"it stops"})"), kAsked) ==
        absl::UnavailableError("the server at https://edge:1 cannot be reached: it stops"));
  CHECK(StatusOf(AnError(404, R"({"code":"not_found"})"), kAsked) == absl::NotFoundError(""));
  ConnectAnswer with_charset = AnError(404, R"({"code":"not_found","message":"x"})");
  with_charset.content_type = "Application/JSON; charset=utf-8";
  CHECK(absl::IsNotFound(StatusOf(with_charset, kAsked)));
}

TEST_CASE("When to ask again is what the server says, else its error's detail, else what a proxy may say") {
  const std::string plain = R"({"code":"resource_exhausted","message":"full"})";
  // google.rpc.RetryInfo of 1.5 s.
  const std::string detailed =
      R"({"code":"resource_exhausted","message":"full","details":[{"type":"x"},5,{"type":"google.rpc.RetryInfo","value":"CggIARCAyrXuAQ"}]})";
  CHECK_FALSE(RetryAfter(StatusOf(AnError(429, plain), kAsked)).has_value());
  CHECK(RetryAfter(StatusOf(AnError(429, detailed), kAsked)) == absl::Milliseconds(1500));
  ConnectAnswer answer = AnError(429, detailed);
  answer.retry_after = "7";
  CHECK(RetryAfter(StatusOf(answer, kAsked)) == absl::Milliseconds(1500));
  answer.retry_pushback_ms = "250";
  CHECK(RetryAfter(StatusOf(answer, kAsked)) == absl::Milliseconds(250));
  answer = AnError(429, plain);
  answer.retry_after = "7";
  CHECK(RetryAfter(StatusOf(answer, kAsked)) == absl::Seconds(7));
  for (const std::string nonsense : {"-1", "soon", "Wed, 21 Oct 2026 07:28:00 GMT", "7 s"}) {
    answer.retry_after = nonsense;
    CHECK_FALSE(RetryAfter(StatusOf(answer, kAsked)).has_value());
  }
  for (const std::string value : {"", "!", "CggI", "CggIARCAyrXuAQAA", "EggIARCAyrXuAQ"}) {
    const std::string json =
        fmt::format(R"({{"code":"aborted","details":[{{"type":"google.rpc.RetryInfo","value":"{}"}}]}})", value);
    CHECK_FALSE(RetryAfter(StatusOf(AnError(409, json), kAsked)).has_value());
  }
  const ConnectAnswer of_proxy = {.http_status = 503, .content_type = "text/html", .retry_after = "3"};
  CHECK(RetryAfter(StatusOf(of_proxy, kAsked)) == absl::Seconds(3));
}

TEST_CASE("An answer that no Sheaf server gives says who answered what, with the code that Connect infers") {
  struct Row {
    int status;
    absl::StatusCode code;
    std::string says;
  };
  for (const Row& row :
       {Row{400, absl::StatusCode::kInternal, "400 Bad Request"},
        Row{401, absl::StatusCode::kUnauthenticated, "401 Unauthorized"},
        Row{403, absl::StatusCode::kPermissionDenied, "403 Forbidden"},
        Row{404, absl::StatusCode::kUnimplemented, "no Sheaf server is there"},
        Row{407, absl::StatusCode::kUnavailable, "USER:PASSWORD@"}, Row{413, absl::StatusCode::kUnknown, "8 MiB"},
        Row{418, absl::StatusCode::kUnknown, "418;"}, Row{429, absl::StatusCode::kUnavailable, "429 Too Many Requests"},
        Row{500, absl::StatusCode::kUnknown, "500 Internal Server Error"},
        Row{502, absl::StatusCode::kUnavailable, "502 Bad Gateway"},
        Row{503, absl::StatusCode::kUnavailable, "503 Service Unavailable"},
        Row{504, absl::StatusCode::kUnavailable, "504 Gateway Timeout"},
        Row{302, absl::StatusCode::kUnknown, "sends callers to https://login"},
        Row{200, absl::StatusCode::kUnknown, "login page"}}) {
    for (const AskedServer& asked : {kAsked, kByProxy}) {
      const ConnectAnswer html = {.http_status = row.status,
                                  .content_type = "text/html",
                                  .location = "https://login",
                                  .body = "<h1>secret page</h1>"};
      const absl::Status status = StatusOf(html, asked);
      INFO(status.ToString());
      CHECK(status.code() == row.code);
      CHECK_THAT(TextOf(status), Contains(row.says) && Contains(asked.server) && !Contains("secret page"));
      if (row.status != 200)
        CHECK((TextOf(status).find("http://proxy:3128") != std::string::npos) == !asked.proxy.empty());
    }
  }
  // JSON that is no error of Connect.
  for (const std::string json : {"", "{", "[]", "3", "{}", R"({"code":7})", R"({"code":"no_such_code"})", "\xff"}) {
    CHECK(StatusOf(AnError(503, json), kAsked).code() == absl::StatusCode::kUnavailable);
  }
}

TEST_CASE("What a proxy says in plain text is shown, one short line of it, and moves no cursor") {
  const ConnectAnswer answer = {.http_status = 400,
                                .content_type = "text/plain",
                                .body = "this port speaks TLS\x1b[2J: " + std::string(1000, 'x') + "\nand more"};
  const std::string text = TextOf(StatusOf(answer, kAsked));
  CHECK_THAT(text, Contains("(\"this port speaks TLS?[2J: xxx") && !Contains("and more"));
  CHECK(text.size() < 500);
}

TEST_CASE("An answer in an encoding that nobody asked for is refused by its name") {
  ConnectAnswer answer = {.http_status = 200, .content_type = "application/proto", .content_encoding = "gzip"};
  const absl::Status status = StatusOf(answer, kAsked);
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK_THAT(TextOf(status), Contains("gzip"));
  answer.content_encoding = "identity";
  CHECK(StatusOf(answer, kAsked).ok());
}

TEST_CASE("A proxy that refuses to lead to the server is named, with what to do") {
  const AskedServer asked = {.server = "https://edge:1", .proxy = "http://proxy:3128", .proxy_variable = "HTTPS_PROXY"};
  const absl::Status without_secret = ProxyRefusal(407, asked);
  CHECK(absl::IsUnavailable(without_secret));
  CHECK_THAT(TextOf(without_secret), Contains("http://proxy:3128 answered 407 Proxy Authentication Required") &&
                                         Contains("in HTTPS_PROXY, as http://USER:PASSWORD@HOST:PORT"));
  CHECK_THAT(TextOf(ProxyRefusal(403, asked)), Contains("403 Forbidden") && Contains("NO_PROXY"));
}

}  // namespace
}  // namespace sheaf
