// Pages of browsers: which may call, and what they are told.
#include "server/http/origins.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

constexpr char kListed[] = "https://app.example";
const std::string kInfo = "/sheaf.v1.InspectionService/GetServerInfo";

Runtime::Options WithOrigins(std::vector<std::string> origins) {
  return {.http = "127.0.0.1:0", .http_origins = std::move(origins)};
}

std::string From(const std::string& origin) { return fmt::format("origin: {}\r\n", origin); }

TEST_CASE("Pages of a listed site may call, and their browser may show them the answer") {
  RunningServer server(WithOrigins({kListed, "http://localhost:5173"}));
  HttpClient client(server.http_address());
  for (const std::string origin : {kListed, "http://localhost:5173"}) {
    INFO(origin);
    const HttpAnswer preflight =
        client.Ask(Request("OPTIONS", kInfo,
                           From(origin) + "access-control-request-method: POST\r\n"
                                          "access-control-request-headers: content-type,connect-protocol-version\r\n"
                                          "access-control-request-private-network: true\r\n"));
    CHECK(preflight.status == 204);
    CHECK(preflight.field("access-control-allow-origin") == origin);
    CHECK(preflight.field("access-control-allow-methods") == "GET, HEAD, POST");
    CHECK_THAT(preflight.field("access-control-allow-headers"), Contains("content-type") && Contains("authorization"));
    CHECK(preflight.field("access-control-allow-private-network") == "true");
    CHECK(preflight.field("access-control-allow-credentials").empty());
    const HttpAnswer answer = client.Ask(Post(kInfo, "application/json", "{}", From(origin)));
    CHECK(answer.status == 200);
    CHECK(answer.field("access-control-allow-origin") == origin);
    CHECK(answer.field("vary") == "origin");
    // What went wrong it may read, too.
    CHECK(client.Ask(Post("/nothing", "application/json", "{}", From(origin))).field("access-control-allow-origin") ==
          origin);
  }
}

TEST_CASE("Pages of other sites are refused, whatever they ask, and nothing is done") {
  RunningServer server(WithOrigins({kListed}));
  HttpClient client(server.http_address());
  const std::string create = ARound("by-a-page").SerializeAsString();
  for (const std::string origin :
       {"https://evil.example", "http://app.example", "https://app.example:444", "https://app.example.evil.example",
        "https://evil.example/https://app.example", "null", "file://", "localhost", "https://"}) {
    INFO(origin);
    for (const std::string& request :
         {Post("/sheaf.v1.RoundService/CreateRound", "application/proto", create, From(origin)),
          Post("/sheaf.v1.RoundService/CreateRound", "text/plain", create, From(origin)),
          Request("GET", kInfo + "?encoding=json&message={}", From(origin)), Request("GET", "/healthz", From(origin)),
          Request("OPTIONS", kInfo, From(origin) + "access-control-request-method: POST\r\n")}) {
      const HttpAnswer answer = client.Ask(request);
      CHECK(answer.status == 403);
      CHECK(answer.field("access-control-allow-origin").empty());
    }
  }
  CHECK(BlockingCall(server.transport(), kListRounds, {})->rounds_size() == 0);
}

TEST_CASE("By default no site is listed, and pages that the server serves itself may call it") {
  RunningServer server(WithOrigins({}));
  HttpClient client(server.http_address());
  CHECK(client.Ask(Post(kInfo, "application/json", "{}", From("http://localhost"))).status == 200);
  CHECK(client.Ask(Post(kInfo, "application/json", "{}", From("http://localhost:1"))).status == 403);
  CHECK(client.Ask(Post(kInfo, "application/json", "{}", From(kListed))).status == 403);
  // A name that its owner lets stand for 127.0.0.1 makes a page of it the server's own: that is why names are looked
  // at.
  CHECK(client
            .Ask("GET " + kInfo +
                 "?encoding=json&message={} HTTP/1.1\r\nhost: evil.example\r\norigin: http://evil.example\r\n\r\n")
            .status == 421);
}

TEST_CASE("Cookies are nobody's token") {
  RunningServer server(WithOrigins({kListed}));
  HttpClient client(server.http_address());
  v1::CreateTokenRequest create;
  create.set_request_id("token");
  create.set_name("admin");
  create.add_roles(v1::OPERATOR);
  const auto token = BlockingCall(server.transport(), kCreateToken, create);
  REQUIRE(token.ok());
  const HttpAnswer answer =
      client.Ask(Post(kInfo, "application/json", "{}",
                      fmt::format("cookie: authorization=Bearer {0}; token={0}\r\n", token->secret())));
  CHECK(answer.status == 401);
  CHECK(answer.field("set-cookie").empty());
}

}  // namespace
}  // namespace sheaf
