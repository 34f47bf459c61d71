// A server whose turn has not come: its calls are answered by the one that owns the store.
#include <fmt/format.h>
#include <poll.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "base/retry_hint.h"
#include "sdk/cpp/client/blob_client.h"
#include "tests/server/http/http_client.h"
#include "tests/server/waiting_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("A call to a server that waits for its turn is answered by the owner of the store, as if it had come there") {
  Owner owner;
  WaitingServer waiting;
  waiting.store().SetOwner(owner.contact());
  for (const bool by_http : {false, true}) {
    INFO((by_http ? "HTTP" : "gRPC"));
    const std::unique_ptr<Transport> transport = by_http ? waiting.ConnectByHttp() : waiting.Connect();
    const v1::Round round = Ok(BlockingCall(*transport, kCreateRound, ARound(by_http ? "round 2" : "round 1"))).round();
    v1::GetRoundRequest get;
    get.set_round(round.id());
    CHECK(Ok(BlockingCall(owner.server().transport(), kGetRound, get)).round().id() == round.id());
    get.set_round("r-nobody");
    const absl::Status there = BlockingCall(owner.server().transport(), kGetRound, get).status();
    const absl::Status here = BlockingCall(*transport, kGetRound, get).status();
    CHECK(there.code() == absl::StatusCode::kNotFound);
    CHECK(here.code() == there.code());
    CHECK(here.message() == there.message());
  }
}

TEST_CASE("A load balancer hears by HTTP which server owns the store") {
  Owner owner;
  WaitingServer waiting;
  waiting.store().SetOwner(owner.contact());
  HttpClient client(waiting.server().http_address());
  const auto ask = [&](const std::string& path) {
    return client.Ask(fmt::format("GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n", path));
  };
  CHECK(ask("/readyz").status == 200);
  CHECK(ask("/owner").status == 503);
  CHECK(ask("/owner").body == "this server does not own the store\n");
}

TEST_CASE("Files of many chunks go through a server that waits for its turn") {
  Owner owner;
  WaitingServer waiting;
  waiting.store().SetOwner(owner.contact());
  const std::unique_ptr<Transport> transport = waiting.Connect();
  SystemRandom random;
  const std::string bytes = [] {
    std::string made(9 << 20, '\0');
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<char>(i * 2654435761u >> 13);
    return made;
  }();
  const std::string digest = Ok(UploadBlob(*transport, random, bytes));
  CHECK(digest == Sha256Hex(bytes));
  CHECK(Ok(ReadBlob(*transport, digest)) == bytes);
  CHECK(Ok(ReadBlob(owner.server().transport(), digest)) == bytes);
}

TEST_CASE("Callers are let in where they come, and the owner looks again who they are") {
  Owner owner;
  const std::string secret = CreateToken(owner.server().transport(), "admin", v1::OPERATOR);
  const SecretFile file(secret);
  WaitingServer waiting({RecordOf(secret, "admin", v1::OPERATOR)});
  const std::unique_ptr<Transport> stranger = waiting.Connect();
  const std::unique_ptr<Transport> known = waiting.Connect(file.security());
  // Nobody else is asked who a stranger is.
  CHECK(BlockingCall(*stranger, kDescribeQueue, {}).status().code() == absl::StatusCode::kUnauthenticated);
  CHECK(BlockingCall(*known, kDescribeQueue, {}).status().code() == absl::StatusCode::kUnavailable);
  waiting.store().SetOwner(owner.contact());
  CHECK(BlockingCall(*known, kDescribeQueue, {}).ok());
  CHECK(BlockingCall(*waiting.ConnectByHttp(file.security()), kDescribeQueue, {}).ok());
  CHECK(BlockingCall(*stranger, kDescribeQueue, {}).status().code() == absl::StatusCode::kUnauthenticated);

  // The waiting server has not heard yet that the one is revoked, and of the other token.
  const std::string viewer = CreateToken(*known, "watcher", v1::VIEWER);
  const std::string other = CreateToken(*known, "other-admin", v1::OPERATOR);
  std::string id;
  const v1::ListTokensResponse list = Ok(BlockingCall(*known, kListTokens, {}));
  for (const v1::Token& token : list.tokens()) {
    if (token.name() == "admin") id = token.id();
  }
  v1::RevokeTokenRequest revoke;
  revoke.set_request_id("revoke");
  revoke.set_token(id);
  REQUIRE(BlockingCall(*known, kRevokeToken, revoke).ok());
  CHECK(BlockingCall(*known, kDescribeQueue, {}).status().code() == absl::StatusCode::kUnauthenticated);
  {
    const SecretFile viewer_file(viewer);
    const std::unique_ptr<Transport> watcher = waiting.Connect(viewer_file.security());
    CHECK(BlockingCall(*watcher, kDescribeQueue, {}).status().code() == absl::StatusCode::kUnauthenticated);
    REQUIRE(waiting.server().SetTokens({RecordOf(viewer, "watcher", v1::VIEWER)}).ok());
    CHECK(BlockingCall(*watcher, kDescribeQueue, {}).ok());
    CHECK(BlockingCall(*watcher, kCreateRound, ARound("round")).status().code() == absl::StatusCode::kPermissionDenied);
  }
}

TEST_CASE("A hint when to try again comes along with the owner's refusal") {
  Limits limits;
  limits.calls_per_second_max = 1;
  Owner owner(limits);
  const std::string secret = CreateToken(owner.server().transport(), "admin", v1::OPERATOR);
  const SecretFile file(secret);
  WaitingServer waiting({RecordOf(secret, "admin", v1::OPERATOR)});
  waiting.store().SetOwner(owner.contact());
  const std::unique_ptr<Transport> transport = waiting.Connect(file.security());
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) status = BlockingCall(*transport, kDescribeQueue, {}).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(status.message()), Contains("calls_per_second_max = 1"));
  CHECK(RetryAfter(status).has_value());
}

TEST_CASE("A poll that waits at the owner ends there when its caller has left the server that it came by") {
  Owner owner;
  WaitingServer waiting;
  waiting.store().SetOwner(owner.contact());
  std::unique_ptr<Transport> transport = waiting.Connect();
  auto parked = CallLater(*transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(owner.server().transport(), 1);
  transport.reset();
  CHECK_FALSE(parked.get().ok());
  WaitForParkedPolls(owner.server().transport(), 0);
}

TEST_CASE("Calls that are open at an owner are given up when the store is another's, and go there when repeated") {
  Owner first;
  Owner second;
  WaitingServer waiting;
  const std::unique_ptr<Transport> transport = waiting.Connect();
  const auto nobody = BlockingCall(*transport, kDescribeQueue, {});
  CHECK(nobody.status().code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(nobody.status().message()), Contains("no server owns the store at the moment"));
  CHECK(RetryAfter(nobody.status()).has_value());

  waiting.store().SetOwner(first.contact());
  auto parked = CallLater(*transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(first.server().transport(), 1);
  waiting.store().SetOwner(second.contact());
  const absl::Status given_up = parked.get().status();
  CHECK(given_up.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(given_up.message()), Contains("server-1 no longer owns the store"));
  CHECK(RetryAfter(given_up).has_value());
  WaitForParkedPolls(first.server().transport(), 0);
  parked = CallLater(*transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(second.server().transport(), 1);

  CHECK(second.server().runtime().Stop().ok());
  CHECK(parked.get().ok());
  const absl::Status gone = BlockingCall(*transport, kDescribeQueue, {}).status();
  CHECK(gone.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(gone.message()), Contains("which owns the store"));
}

TEST_CASE("The port for servers is for who knows its server's secret and certificate") {
  Owner owner;
  Owner other;
  WaitingServer waiting;
  const std::unique_ptr<Transport> transport = waiting.Connect();
  const auto answer = [&](const GrpcForwarder::Owner& contact) {
    waiting.store().SetOwner(contact);
    return BlockingCall(*transport, kDescribeQueue, {}).status();
  };
  CHECK(answer(owner.contact()).ok());
  GrpcForwarder::Owner guessed = owner.contact();
  guessed.secret = "sardines!";
  const absl::Status refused = answer(guessed);
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(refused.message()), Contains("newest secret"));
  GrpcForwarder::Owner impostor = owner.contact();
  impostor.certificate = other.contact().certificate;
  CHECK(answer(impostor).code() == absl::StatusCode::kUnavailable);
  // Who calls it as any other port is no server, with or without words of its own.
  const std::unique_ptr<Transport> in_the_clear = OpenTransport(owner.contact().address, {.own_connection = true});
  CHECK_FALSE(BlockingCall(*in_the_clear, kDescribeQueue, {}, {.timeout = absl::Seconds(5)}).ok());
}

// What a server whose turn has come serves.
struct TakenStore {
  MemoryTaskStore tasks;
  MemoryPayloadStore payloads;
  SystemRandom random;
};

TEST_CASE("Whoever calls while a server's turn comes is served when it has come, over the connection that it has") {
  Owner owner;
  TakenStore store;
  WaitingServer waiting;
  waiting.store().SetOwner(owner.contact());
  const std::unique_ptr<Transport> transport = waiting.Connect();
  const std::unique_ptr<Transport> by_http = waiting.ConnectByHttp();
  std::unique_ptr<Transport> leaving = waiting.Connect();
  HttpClient client(waiting.server().http_address());
  const auto owner_status = [&] { return client.Ask("GET /owner HTTP/1.1\r\nhost: localhost\r\n\r\n").status; };
  auto parked = CallLater(*transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(owner.server().transport(), 1);
  const SystemClock clock;
  const absl::Time start = clock.Now();
  waiting.store().Hold();
  CHECK(clock.Now() - start < absl::Milliseconds(500));
  CHECK(parked.get().status().code() == absl::StatusCode::kUnavailable);

  auto called = CallLater(*transport, kDescribeQueue, {});
  auto called_by_http = CallLater(*by_http, kDescribeQueue, {});
  v1::ReadBlobRequest read;
  read.set_digest(Sha256Hex("nothing"));
  auto in_the_pool = CallLater(*transport, kReadBlob, read);
  auto gone = CallLater(*leaving, kSync, AParkedPoll("leaving"));
  ::poll(nullptr, 0, 50);
  CHECK(called.wait_for(std::chrono::seconds(0)) != std::future_status::ready);
  leaving.reset();
  CHECK_FALSE(gone.get().ok());
  CHECK(owner_status() == 503);

  REQUIRE(waiting.store().Serve(store.tasks, store.payloads, store.random).ok());
  CHECK(called.get().ok());
  CHECK(called_by_http.get().ok());
  CHECK(in_the_pool.get().status().code() == absl::StatusCode::kNotFound);
  CHECK(owner_status() == 200);
  parked = CallLater(*transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(*by_http, 1);
  REQUIRE(BlockingCall(*transport, kCreateRound, ARound("round")).ok());
  CHECK(Ok(parked.get()).leases_size() == 1);
  // Nothing of this came to the owner before.
  CHECK(Ok(BlockingCall(owner.server().transport(), kGetServerInfo, {})).num_live_rounds() == 0);
  CHECK_THAT(waiting.server().Metrics(), Contains("sheaf_rounds{population=\"default\",state=\"COLLECTING\"} 1"));
  auto waits_at_the_end = CallLater(*transport, kSync, AParkedPoll("patient"));
  WaitForParkedPolls(*by_http, 1);
  CHECK(waiting.server().Stop().ok());
  CHECK(waits_at_the_end.get().ok());
}

TEST_CASE("Who may call is said by the store that a server serves, from its turn on") {
  TakenStore store;
  WaitingServer waiting;
  const std::unique_ptr<Transport> transport = waiting.Connect();
  waiting.store().Hold();
  REQUIRE(waiting.store().Serve(store.tasks, store.payloads, store.random).ok());
  CHECK(BlockingCall(*transport, kDescribeQueue, {}).ok());
  const SecretFile file(CreateToken(*transport, "admin", v1::OPERATOR));
  // At once.
  CHECK(BlockingCall(*transport, kDescribeQueue, {}).status().code() == absl::StatusCode::kUnauthenticated);
  CHECK(BlockingCall(*waiting.Connect(file.security()), kDescribeQueue, {}).ok());
}

TEST_CASE("What a server forwards to one that does not own the store goes no further") {
  Owner owner;
  TakenStore store;
  WaitingServer between;
  between.store().SetOwner(owner.contact());
  WaitingServer waiting;
  waiting.store().SetOwner(between.contact());
  const std::unique_ptr<Transport> transport = waiting.Connect();
  const absl::Status refused = BlockingCall(*transport, kDescribeQueue, {}).status();
  CHECK(refused.code() == absl::StatusCode::kUnavailable);
  CHECK_THAT(std::string(refused.message()), Contains("this server does not own the store"));
  CHECK(RetryAfter(refused).has_value());
  // It is in turn, once it owns it.
  between.store().Hold();
  auto held = CallLater(*transport, kDescribeQueue, {});
  REQUIRE(between.store().Serve(store.tasks, store.payloads, store.random).ok());
  CHECK(held.get().ok());
}

}  // namespace
}  // namespace sheaf
