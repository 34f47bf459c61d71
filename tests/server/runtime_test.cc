// A running server: parked calls wake, and a graceful stop leaves nobody without an answer.
#include "server/runtime.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "tests/server/running_server.h"

namespace sheaf {
namespace {

TEST_CASE("A parked worker is given a task as soon as there is one") {
  RunningServer server;
  GrpcTransport submitter(server.address(), {.own_connection = true});
  auto parked = CallLater(server.transport(), kSync, AParkedPoll("worker"));
  WaitForParkedPolls(submitter, 1);
  const auto created = BlockingCall(submitter, kCreateRound, ARound("round"));
  REQUIRE(created.ok());
  const auto answer = parked.get();
  REQUIRE(answer.ok());
  REQUIRE(answer->leases_size() == 1);
  CHECK(answer->leases(0).round() == created->round().id());
}

TEST_CASE("A graceful stop answers parked polls at once") {
  RunningServer server;
  GrpcTransport operator_transport(server.address(), {.own_connection = true});
  std::vector<std::future<absl::StatusOr<v1::SyncResponse>>> parked;
  for (int i = 0; i < 3; ++i) {
    parked.push_back(CallLater(server.transport(), kSync, AParkedPoll("worker-" + std::to_string(i))));
  }
  WaitForParkedPolls(operator_transport, 3);
  const SystemClock clock;
  const absl::Time start = clock.Now();
  CHECK(server.runtime().Stop().ok());
  CHECK(clock.Now() - start < absl::Seconds(5));
  for (auto& poll : parked) {
    const auto answer = poll.get();
    INFO(answer.status().ToString());
    REQUIRE(answer.ok());
    CHECK(answer->leases().empty());
  }
}

TEST_CASE("A graceful stop answers a program that waits for its round") {
  RunningServer server;
  const auto created = BlockingCall(server.transport(), kCreateRound, ARound("round"));
  REQUIRE(created.ok());
  v1::GetRoundRequest request;
  request.set_round(created->round().id());
  request.set_etag(created->round().etag());
  request.mutable_wait()->set_seconds(50);
  auto waiting = CallLater(server.transport(), kGetRound, request);
  // A second call that is answered shows that the server had time to park the first.
  REQUIRE(BlockingCall(server.transport(), kGetServerInfo, {}).ok());
  CHECK(server.runtime().Stop().ok());
  const auto status = waiting.get().status();
  CHECK((status.ok() || status.code() == absl::StatusCode::kUnavailable));
}

TEST_CASE("A server that was stopped is stopped: no call is taken, and stopping again is fine") {
  RunningServer server;
  CHECK(server.runtime().Stop().ok());
  CHECK(server.runtime().Stop().ok());
  const auto info = BlockingCall(server.transport(), kGetServerInfo, {}, {.timeout = absl::Seconds(2)});
  CHECK_FALSE(info.ok());
}

TEST_CASE("Many calls at once are all answered") {
  RunningServer server;
  std::vector<std::future<absl::StatusOr<v1::CreateRoundResponse>>> calls;
  for (int i = 0; i < 500; ++i) {
    calls.push_back(CallLater(server.transport(), kCreateRound, ARound("round-" + std::to_string(i))));
  }
  for (auto& call : calls) CHECK(call.get().ok());
  v1::ListRoundsRequest request;
  request.set_page_size(1000);
  const auto rounds = BlockingCall(server.transport(), kListRounds, request);
  REQUIRE(rounds.ok());
  CHECK(rounds->rounds_size() == 500);
}

}  // namespace
}  // namespace sheaf
