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
  waiting.standby().SetOwner(owner.contact());
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
  waiting.standby().SetOwner(owner.contact());
  HttpClient client(waiting.standby().http_address());
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
  waiting.standby().SetOwner(owner.contact());
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
  waiting.standby().SetOwner(owner.contact());
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
    REQUIRE(waiting.standby().SetTokens({RecordOf(viewer, "watcher", v1::VIEWER)}).ok());
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
  waiting.standby().SetOwner(owner.contact());
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
  waiting.standby().SetOwner(owner.contact());
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

  waiting.standby().SetOwner(first.contact());
  auto parked = CallLater(*transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(first.server().transport(), 1);
  waiting.standby().SetOwner(second.contact());
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
    waiting.standby().SetOwner(contact);
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

TEST_CASE("Whoever calls while a server's turn comes is served when it has come") {
  Owner owner;
  WaitingServer waiting;
  waiting.standby().SetOwner(owner.contact());
  const std::string address = waiting.standby().address();
  const std::string http_address = waiting.standby().http_address();
  const std::unique_ptr<Transport> transport = waiting.Connect();
  auto parked = CallLater(*transport, kSync, AParkedPoll("worker"));
  WaitForParkedPolls(owner.server().transport(), 1);
  const SystemClock clock;
  const absl::Time start = clock.Now();
  Doors doors = waiting.standby().TakeDoors();
  waiting.Stop();
  CHECK(clock.Now() - start < absl::Milliseconds(500));
  CHECK(parked.get().status().code() == absl::StatusCode::kUnavailable);
  const std::unique_ptr<Transport> early = OpenTransport(address, {.own_connection = true});
  auto called = CallLater(*early, kDescribeQueue, {});
  ::poll(nullptr, 0, 50);
  RunningServer server(Runtime::Options{.http = "127.0.0.1:0", .doors = std::move(doors)});
  CHECK(called.get().ok());
  CHECK(server.address() == address);
  CHECK(server.http_address() == http_address);
  CHECK(BlockingCall(*OpenTransport("http://" + http_address, {}), kDescribeQueue, {}).ok());
}

}  // namespace
}  // namespace sheaf
