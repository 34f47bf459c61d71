// The server as clients of HTTP/1.1 see it, byte by byte over real sockets.
#include "server/http/http_server.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

// A call with serialised messages.
template <typename Request, typename Response>
HttpAnswer AskProto(HttpClient& client, const Method<Request, Response>& method, const Request& request,
                    const std::string& fields = "") {
  return client.Ask(Post(std::string("/") + method.name, "application/proto", request.SerializeAsString(), fields));
}

template <typename Request, typename Response>
Response MustAsk(HttpClient& client, const Method<Request, Response>& method, const Request& request,
                 const std::string& fields = "") {
  const HttpAnswer answer = AskProto(client, method, request, fields);
  INFO(method.name << ": " << answer.status << " " << answer.body);
  REQUIRE(answer.status == 200);
  CHECK(answer.field("content-type") == "application/proto");
  Response response;
  REQUIRE(response.ParseFromString(answer.body));
  return response;
}

std::string CodeOf(const HttpAnswer& answer) {
  INFO(answer.status << " " << answer.body);
  REQUIRE(answer.field("content-type") == "application/json");
  return Json::parse(answer.body).at("code");
}

class HttpServed : public RunningServer {
 public:
  explicit HttpServed(const Limits& limits = {})
      : RunningServer(Runtime::Options{.http = "127.0.0.1:0", .limits = limits}), client(http_address()) {}

  HttpClient client;
};

TEST_CASE("A task travels by HTTP: a round is made, leased, returned, and read") {
  HttpServed server;
  const v1::CreateRoundResponse created = MustAsk(server.client, kCreateRound, ARound("by-http"));
  const v1::SyncResponse leased = MustAsk(server.client, kSync, AParkedPoll("worker", 0));
  REQUIRE(leased.leases_size() == 1);
  const float one = 1;
  v1::Contribution contribution;
  v1::OutputValue& value = *contribution.add_outputs();
  value.set_name("x");
  value.mutable_dense()->set_dtype(v1::FLOAT32);
  value.mutable_dense()->set_data(std::string(reinterpret_cast<const char*>(&one), sizeof one));
  v1::SyncRequest result = AParkedPoll("worker", 0);
  result.set_poll_id("poll-2");
  v1::TaskResult& back = *result.add_results();
  back.set_task(leased.leases(0).task());
  back.set_lease_token(leased.leases(0).lease_token());
  back.set_contribution(contribution.SerializeAsString());
  const v1::SyncResponse handed_in = MustAsk(server.client, kSync, result);
  REQUIRE(handed_in.verdicts_size() == 1);
  CHECK(handed_in.verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED);
  v1::GetRoundRequest get;
  get.set_round(created.round().id());
  get.mutable_wait()->set_seconds(30);
  v1::Round round = created.round();
  for (int tries = 0; tries < 10 && round.state() != v1::SUCCEEDED; ++tries) {
    get.set_etag(round.etag());
    round = MustAsk(server.client, kGetRound, get).round();
  }
  CHECK(round.state() == v1::SUCCEEDED);
  v1::ReadAggregateRequest read;
  read.set_round(round.id());
  const v1::ReadAggregateResponse aggregate = MustAsk(server.client, kReadAggregate, read);
  CHECK_THAT(aggregate.data(), Contains("\"x\""));
  const HttpAnswer file = server.client.Ask(Request("GET", "/files/aggregates/" + round.id()));
  CHECK(file.status == 200);
  CHECK(file.body == aggregate.data());
  CHECK(file.field("etag") == "\"" + aggregate.digest() + "\"");
}

TEST_CASE("JSON is another way to say the same") {
  HttpServed server;
  const HttpAnswer created =
      server.client.Ask(Post("/sheaf.v1.RoundService/CreateRound", "application/json",
                             R"({"requestId": "r", "spec": {"computation": {"name": "noop"}, "open_slots": {"count": 3},
               "aggregate": {"outputs": [{"name": "x", "operator": "sum", "dtype": "FLOAT32"}]}},
               "aFieldOfTheFuture": {"a": [1, 2]}})"));
  INFO(created.body);
  REQUIRE(created.status == 200);
  CHECK(created.field("content-type") == "application/json");
  CHECK(Json::parse(created.body).at("round").at("spec").at("computation").at("name") == "noop");
}

TEST_CASE("Nonsense is refused with a reason, and the connection goes on") {
  HttpServed server;
  struct Row {
    std::string what;
    std::string request;
    int status;
    std::string code;
  };
  const std::string sync = "/sheaf.v1.WorkService/Sync";
  const std::string info = "/sheaf.v1.InspectionService/GetServerInfo";
  for (const Row& row : {
           Row{"no message", Post(sync, "application/proto", "nonsense"), 400, "invalid_argument"},
           Row{"no JSON", Post(sync, "application/json", "{\"worker\": "), 400, "invalid_argument"},
           Row{"JSON of another kind", Post(sync, "application/json", "[1]"), 400, "invalid_argument"},
           Row{"JSON of another type", Post(sync, "application/json", "{\"worker\": {}}"), 400, "invalid_argument"},
           Row{"JSON that is deep", Post(sync, "application/json", std::string(1000, '[')), 400, "invalid_argument"},
           Row{"no method", Post("/sheaf.v1.WorkService/Nothing", "application/proto", ""), 404, "unimplemented"},
           Row{"no service", Post("/nothing.v1.Service/Method", "application/proto", ""), 404, "unimplemented"},
           Row{"a call of a page", Post("/", "application/proto", ""), 405, "unimplemented"},
           Row{"a change by GET", Request("GET", sync + "?encoding=json&message={}"), 405, "unimplemented"},
           Row{"another verb", Request("PUT", info), 405, "unimplemented"},
           Row{"a media type", Post(info, "text/plain", "x"), 415, "invalid_argument"},
           Row{"a stream", Post(info, "application/connect+proto", "x"), 415, "invalid_argument"},
           Row{"a compression", Post(info, "application/proto", "x", "content-encoding: gzip\r\n"), 501,
               "unimplemented"},
           Row{"a version", Post(info, "application/proto", "", "connect-protocol-version: 7\r\n"), 400,
               "invalid_argument"},
           Row{"no round", Post("/sheaf.v1.RoundService/GetRound", "application/json", R"({"round": "r-none"})"), 404,
               "not_found"},
       }) {
    INFO(row.what);
    const HttpAnswer answer = server.client.Ask(row.request);
    CHECK(answer.status == row.status);
    CHECK(CodeOf(answer) == row.code);
    CHECK_FALSE(Json::parse(answer.body).at("message").get<std::string>().empty());
  }
  MustAsk(server.client, kGetServerInfo, {});
}

TEST_CASE("Every read is served to GET, in both encodings") {
  HttpServed server;
  const v1::CreateRoundResponse created = MustAsk(server.client, kCreateRound, ARound("round"));
  const std::string round = created.round().id();
  struct Row {
    std::string method;
    Json request;
  };
  for (const Row& row :
       {Row{"RoundService/GetRound", {{"round", round}}}, Row{"RoundService/ListRounds", Json::object()},
        Row{"InspectionService/ListTasks", {{"round", round}}},
        Row{"InspectionService/GetTask", {{"task", round + "/0"}}},
        Row{"InspectionService/DescribeQueue", Json::object()}, Row{"InspectionService/ListWorkers", Json::object()},
        Row{"InspectionService/ExplainRound", {{"round", round}}},
        Row{"InspectionService/GetServerInfo", Json::object()}, Row{"AccessService/ListTokens", Json::object()}}) {
    INFO(row.method);
    std::string base64;
    absl::WebSafeBase64Escape(row.request.dump(), &base64);
    const std::string target = "/sheaf.v1." + row.method + "?connect=v1&encoding=json&base64=1&message=" + base64;
    const HttpAnswer got = server.client.Ask(Request("GET", target));
    const HttpAnswer posted =
        server.client.Ask(Post("/sheaf.v1." + row.method, "application/json", row.request.dump()));
    INFO(got.body);
    CHECK(got.status == 200);
    CHECK(posted.status == 200);
    CHECK(Json::parse(got.body).is_object());
    CHECK(got.field("cache-control") == "no-store");
    const HttpAnswer head = server.client.Ask(Request("HEAD", target));
    CHECK(head.status == 200);
    CHECK(head.body.empty());
    CHECK(head.field("content-type") == "application/json");
  }
}

TEST_CASE("A poll waits at the server, and is answered when there is a task") {
  HttpServed server;
  server.client.Send(
      Post("/sheaf.v1.WorkService/Sync", "application/proto", AParkedPoll("worker").SerializeAsString()));
  WaitForParkedPolls(server.transport(), 1);
  CHECK(server.client.IsSilent(50));
  REQUIRE(BlockingCall(server.transport(), kCreateRound, ARound("round")).ok());
  const HttpAnswer answer = server.client.Receive();
  CHECK(answer.status == 200);
  v1::SyncResponse response;
  REQUIRE(response.ParseFromString(answer.body));
  CHECK(response.leases_size() == 1);
}

TEST_CASE("A poll whose client has gone, or hung up its side, is abandoned") {
  HttpServed server;
  const std::string poll =
      Post("/sheaf.v1.WorkService/Sync", "application/proto", AParkedPoll("worker").SerializeAsString());
  {
    HttpClient client(server.http_address());
    client.Send(poll);
    WaitForParkedPolls(server.transport(), 1);
  }
  WaitForParkedPolls(server.transport(), 0);
  HttpClient half(server.http_address());
  half.Send(poll);
  WaitForParkedPolls(server.transport(), 1);
  half.EndSending();
  CHECK(CodeOf(half.Receive()) == "canceled");
  CHECK(half.IsHungUp());
  WaitForParkedPolls(server.transport(), 0);
}

TEST_CASE("A call that takes longer than its client waits is ended with deadline_exceeded") {
  HttpServed server;
  const HttpAnswer answer = AskProto(server.client, kSync, AParkedPoll("worker"), "connect-timeout-ms: 100\r\n");
  CHECK(answer.status == 504);
  CHECK(CodeOf(answer) == "deadline_exceeded");
  WaitForParkedPolls(server.transport(), 0);
  // The connection goes on.
  MustAsk(server.client, kGetServerInfo, {});
}

TEST_CASE("Requests that come together are answered in their order, one at a time") {
  HttpServed server;
  const std::string info = Post("/sheaf.v1.InspectionService/GetServerInfo", "application/proto", "");
  std::string requests =
      Post("/sheaf.v1.WorkService/Sync", "application/proto", AParkedPoll("worker").SerializeAsString());
  for (int i = 0; i < 500; ++i) requests += i % 2 == 0 ? info : Request("GET", "/healthz");
  server.client.Send(requests);
  WaitForParkedPolls(server.transport(), 1);
  CHECK(server.client.IsSilent(50));
  REQUIRE(BlockingCall(server.transport(), kCreateRound, ARound("round")).ok());
  CHECK(server.client.Receive().field("content-type") == "application/proto");
  for (int i = 0; i < 500; ++i) {
    const HttpAnswer answer = server.client.Receive();
    REQUIRE(answer.status == 200);
    REQUIRE((answer.field("content-type") == "application/proto") == (i % 2 == 0));
  }
}

TEST_CASE("Without tokens the server is this machine's, whatever name a page gives it") {
  HttpServed server;
  const auto ask = [&](const std::string& host) {
    const std::string target = "/sheaf.v1.InspectionService/GetServerInfo?encoding=json&message={}";
    return server.client.Ask(fmt::format("GET {} HTTP/1.1\r\nhost: {}\r\n\r\n", target, host)).status;
  };
  for (const std::string host : {"localhost", "localhost:7434", "127.0.0.1:7434", "127.1.2.3", "[::1]:7434"}) {
    INFO(host);
    CHECK(ask(host) == 200);
  }
  for (const std::string host :
       {"evil.example", "evil.example:7434", "localhost.evil.example", "[::2]", "192.0.2.1", ""}) {
    INFO(host);
    CHECK(ask(host) == 421);
  }
  CHECK(server.client.Ask("GET /healthz HTTP/1.1\r\nhost: anything\r\n\r\n").status == 200);
}

TEST_CASE("Once there are tokens a call needs one, and says so in its head") {
  HttpServed server;
  v1::CreateTokenRequest create;
  create.set_request_id("token");
  create.set_name("admin");
  create.add_roles(v1::OPERATOR);
  const std::string secret = MustAsk(server.client, kCreateToken, create).secret();
  const HttpAnswer stranger = AskProto(server.client, kGetServerInfo, {});
  CHECK(stranger.status == 401);
  CHECK(CodeOf(stranger) == "unauthenticated");
  CHECK(stranger.field("www-authenticate") == "Bearer");
  CHECK(AskProto(server.client, kGetServerInfo, {}, "authorization: Bearer nonsense\r\n").status == 401);
  const std::string shown = fmt::format("authorization: Bearer {}\r\n", secret);
  MustAsk(server.client, kGetServerInfo, {}, shown);
  CHECK(AskProto(server.client, kSync, AParkedPoll("worker"), shown).status == 403);
}

TEST_CASE("Whoever asks is told who the server takes them for, and what they may do") {
  HttpServed server;
  const v1::Caller anybody = MustAsk(server.client, kGetServerInfo, {}).caller();
  CHECK(anybody.name().empty());
  CHECK(anybody.roles_size() == 4);
  CHECK(anybody.populations().empty());
  v1::CreateTokenRequest create;
  create.set_request_id("token-1");
  create.set_name("admin");
  create.add_roles(v1::OPERATOR);
  const std::string admin =
      fmt::format("authorization: Bearer {}\r\n", MustAsk(server.client, kCreateToken, create).secret());
  create.set_request_id("token-2");
  create.set_name("guest");
  create.set_roles(0, v1::VIEWER);
  create.add_populations("here");
  const std::string guest =
      fmt::format("authorization: Bearer {}\r\n", MustAsk(server.client, kCreateToken, create, admin).secret());
  const v1::Caller caller = MustAsk(server.client, kGetServerInfo, {}, guest).caller();
  CHECK(caller.name() == "guest");
  REQUIRE(caller.roles_size() == 1);
  CHECK(caller.roles(0) == v1::VIEWER);
  REQUIRE(caller.populations_size() == 1);
  CHECK(caller.populations(0) == "here");
  CHECK(MustAsk(server.client, kGetServerInfo, {}, admin).caller().roles(0) == v1::OPERATOR);
}

TEST_CASE("Health is told to everybody, and being ready ends before the calls do") {
  HttpServed server;
  CHECK(server.client.Ask(Request("GET", "/healthz")).body == "ok\n");
  CHECK(server.client.Ask(Request("GET", "/readyz")).status == 200);
  CHECK(server.client.Ask(Request("GET", "/owner")).status == 200);
  CHECK(server.client.Ask(Request("HEAD", "/readyz")).field("content-length") == "3");
  CHECK(server.client.Ask(Request("POST", "/readyz")).status == 405);
}

TEST_CASE("A server that stops answers the polls that wait, and hangs up") {
  HttpServed server;
  HttpClient idle(server.http_address());
  CHECK(idle.Ask(Request("GET", "/healthz")).status == 200);
  server.client.Send(
      Post("/sheaf.v1.WorkService/Sync", "application/proto", AParkedPoll("worker").SerializeAsString()));
  WaitForParkedPolls(server.transport(), 1);
  REQUIRE(server.runtime().Stop().ok());
  CHECK(server.client.Receive().status == 200);
  CHECK(server.client.IsHungUp());
  CHECK(idle.IsHungUp());
}

}  // namespace
}  // namespace sheaf
