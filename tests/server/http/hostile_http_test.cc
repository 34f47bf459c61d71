// Clients of HTTP that mean no good, or are broken: what they can take, and for how long.
#include <catch2/catch.hpp>
#include <list>
#include <string>

#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

const std::string kInfo = "/sheaf.v1.InspectionService/GetServerInfo";

class HttpServed : public RunningServer {
 public:
  explicit HttpServed(const Limits& limits = {})
      : RunningServer(Runtime::Options{.http = "127.0.0.1:0", .limits = limits}) {}
  HttpClient Client() { return HttpClient(http_address()); }
};

Limits Hasty() {
  Limits limits;
  limits.handshake_timeout = absl::Milliseconds(300);
  limits.request_time_max = absl::Milliseconds(300);
  limits.answer_time_max = absl::Milliseconds(300);
  return limits;
}

TEST_CASE("Connections that say nothing, or a byte at a time, are hung up on, and stop nobody else") {
  HttpServed server(Hasty());
  std::list<HttpClient> slow;
  for (const std::string begun : {"", "G", "GET /healthz HTTP/1.1\r\nhost: a\r\nx: ", "POST / HTTP/1.1\r\n"}) {
    slow.emplace_back(server.http_address()).Send(begun);
  }
  HttpClient body(server.http_address());
  body.Send("POST " + kInfo +
            " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\ncontent-length: 5\r\n\r\n123");
  HttpClient chunks(server.http_address());
  chunks.Send("POST " + kInfo + " HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12");
  HttpClient trickle(server.http_address());
  for (int i = 0; i < 20; ++i) {
    trickle.Send("x");
    CHECK(server.Client().Ask(Request("GET", "/healthz")).status == 200);
    CHECK(trickle.IsSilent(10));
  }
  for (HttpClient& client : slow) {
    const HttpAnswer answer = client.Receive();
    CHECK((answer.status == 0 || answer.status == 408));
    CHECK(client.IsHungUp());
  }
  for (HttpClient* client : {&body, &chunks}) {
    const HttpAnswer answer = client->Receive();
    CHECK(answer.status == 408);
    CHECK_THAT(answer.body, Contains("request_time_max_ms = 300"));
    CHECK(client->IsHungUp());
  }
  trickle.Receive();
  CHECK(trickle.IsHungUp());
}

TEST_CASE("What cannot be read is answered with the reason, and the connection ends, so that nothing is smuggled") {
  HttpServed server;
  for (const std::string& request :
       {std::string("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n12345"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), std::string("nonsense\r\n\r\n"),
        "GET / HTTP/1.1\r\nhost: " + std::string(20'000, 'a')}) {
    INFO(request.substr(0, 60));
    HttpClient client = server.Client();
    // What follows is not looked at.
    client.Send(request + Request("GET", "/healthz"));
    const HttpAnswer answer = client.Receive();
    CHECK(answer.status >= 400);
    CHECK(answer.field("connection") == "close");
    CHECK(client.IsHungUp());
  }
}

TEST_CASE("A body that nobody will take is refused before it comes, and its client gets to read why") {
  HttpServed server;
  HttpClient large = server.Client();
  large.Send("POST " + kInfo + " HTTP/1.1\r\nhost: localhost\r\ncontent-length: 999999999\r\n\r\n");
  // It sends on, as clients do.
  for (int i = 0; i < 100; ++i) large.Send(std::string(64 << 10, 'x'));
  const HttpAnswer answer = large.Receive();
  CHECK(answer.status == 413);
  CHECK_THAT(answer.body, Contains("request_bytes_max"));

  HttpClient nowhere = server.Client();
  CHECK(nowhere.Ask("POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n").status == 404);
  HttpClient health = server.Client();
  CHECK(health.Ask("GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc").status == 413);

  // Once there are tokens a stranger's body is not waited for.
  v1::CreateTokenRequest create;
  create.set_request_id("token");
  create.set_name("admin");
  create.add_roles(v1::OPERATOR);
  REQUIRE(BlockingCall(server.transport(), kCreateToken, create).ok());
  HttpClient stranger = server.Client();
  CHECK(stranger.Ask("POST " + kInfo + " HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n").status == 401);
}

TEST_CASE("Whoever asks before it sends is told to go on, or why not") {
  HttpServed server;
  HttpClient client = server.Client();
  client.Send("POST " + kInfo +
              " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\ncontent-length: 2\r\n"
              "expect: 100-continue\r\n\r\n");
  CHECK(client.Receive(false).status == 100);
  client.Send("\x0a\x00");
  client.Send(std::string_view("\0", 1));
  CHECK(client.Receive().status == 200);
  CHECK(server.Client()
            .Ask("POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
            .status == 404);
  CHECK(server.Client()
            .Ask("POST " + kInfo + " HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\nexpect: a-miracle\r\n\r\n")
            .status == 417);
}

TEST_CASE("Requests that are arriving have a bound in memory") {
  Limits limits;
  limits.receive_bytes_max = 1 << 20;
  HttpServed server(limits);
  const std::string begun =
      "POST " + kInfo +
      " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/proto\r\ncontent-length: 8000000\r\n\r\n";
  std::list<HttpClient> clients;
  std::string refused;
  for (int i = 0; i < 40 && refused.empty(); ++i) {
    HttpClient& client = clients.emplace_back(server.http_address());
    client.Send(begun + std::string(100'000, 'x'));
    if (!client.IsSilent(50)) refused = client.Receive().body;
  }
  CHECK_THAT(refused, Contains("receive_bytes_max = 1048576") && Contains("RetryInfo"));
  // What they held is free again.
  clients.clear();
  for (int tries = 0;; ++tries) {
    HttpClient client = server.Client();
    if (client.Ask(Post(kInfo, "application/proto", std::string(900'000, '\x01'))).status == 400) break;
    REQUIRE(tries < 1000);
  }
}

TEST_CASE("Connections have a bound, and one address leaves others some") {
  Limits limits;
  limits.http_connections_max = 10;
  HttpServed server(limits);
  std::list<HttpClient> clients;
  for (int i = 0; i < 9; ++i) {
    REQUIRE(clients.emplace_back(server.http_address()).Ask(Request("GET", "/healthz")).status == 200);
  }
  CHECK(server.Client().Ask(Request("GET", "/healthz")).status == 0);
  clients.pop_front();
  for (int tries = 0; server.Client().Ask(Request("GET", "/healthz")).status != 200; ++tries) REQUIRE(tries < 10'000);
}

TEST_CASE("Answers that nobody takes are cut off, and the memory for them is free") {
  HttpServed server(Hasty());
  // A whole list in JSON, again and again, and not a byte read.
  for (int i = 0; i < 20; ++i)
    REQUIRE(BlockingCall(server.transport(), kCreateRound, ARound(std::to_string(i), 100)).ok());
  HttpClient unread = server.Client();
  const std::string list = Post("/sheaf.v1.InspectionService/ListTasks", "application/json", R"({"pageSize": 1000})");
  // It ends when the server has hung up.
  int sent = 0;
  while (sent < 100'000 && unread.Send(list)) ++sent;
  CHECK(sent < 100'000);
  CHECK(server.Client().Ask(Request("GET", "/healthz")).status == 200);
}

TEST_CASE("What a client sends ahead stays in its socket, and a poll of somebody who sends ahead goes on") {
  HttpServed server;
  HttpClient client = server.Client();
  client.Send(Post("/sheaf.v1.WorkService/Sync", "application/proto", AParkedPoll("worker").SerializeAsString()));
  WaitForParkedPolls(server.transport(), 1);
  // More than the server reads ahead.
  const std::string large = Post(kInfo, "application/proto", std::string(1 << 20, '\x01'));
  client.Send(large);
  CHECK(client.IsSilent(50));
  REQUIRE(BlockingCall(server.transport(), kCreateRound, ARound("round")).ok());
  CHECK(client.Receive().status == 200);
  CHECK(client.Receive().status == 400);
  CHECK(client.Ask(Request("GET", "/healthz")).status == 200);
}

TEST_CASE("Paths, names and messages that are script come back as text") {
  HttpServed server;
  HttpClient client = server.Client();
  for (const std::string& request :
       {Request("GET", "/<script>alert(1)</script>"),
        Post("/sheaf.v1.RoundService/GetRound", "application/json", R"({"round": "<script>alert(1)</script>"})"),
        Post("/sheaf.v1.RoundService/GetRound", "application/json", R"(<script>alert(1)</script>)")}) {
    const HttpAnswer answer = client.Ask(request);
    INFO(answer.body);
    CHECK(answer.status >= 400);
    CHECK(answer.field("content-type") == "application/json");
    CHECK(answer.field("x-content-type-options") == "nosniff");
    CHECK(answer.body.find('<') == std::string::npos);
  }
}

}  // namespace
}  // namespace sheaf
