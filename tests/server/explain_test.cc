// What `sheaf round explain` says of rounds that wait, that cannot succeed, and that have ended.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

v1::ExplainRoundResponse Explain(CoreFederation& server, const std::string& round) {
  v1::ExplainRoundRequest request;
  request.set_round(round);
  const auto explained = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
  REQUIRE(explained.ok());
  return *explained;
}

std::string TextOf(const v1::ExplainRoundResponse& response) {
  std::string text = response.summary() + "\n";
  for (const std::string& reason : response.reasons()) text += "- " + reason + "\n";
  for (const std::string& hint : response.hints()) text += "try: " + hint + "\n";
  return text;
}

std::string Explained(CoreFederation& server, const std::string& round) { return TextOf(Explain(server, round)); }

v1::RoundSpec ShortRound(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.mutable_deadline()->set_seconds(600);
  spec.mutable_retry()->set_failed_max(1);
  return spec;
}

void Fail(CoreFederation& server, const std::string& worker, bool is_permanent) {
  const v1::Lease lease = server.Sync(Ask(worker, 1)).leases(0);
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_results() = Failure(lease, "the data set is empty", is_permanent);
  server.Sync(request);
}

void Contribute(CoreFederation& server, const std::string& worker) {
  const v1::Lease lease = server.Sync(Ask(worker, 1)).leases(0);
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_results() = Result(lease, 1);
  server.Sync(request);
}

TEST_CASE("Explain says that a round will fail when too few tasks can still contribute") {
  CoreFederation server;
  v1::RoundSpec spec = ShortRound(4);
  spec.set_min_goal(3);
  const std::string round = server.CreateRound(spec);
  Contribute(server, "w");
  Fail(server, "w", false);
  // Two are left, and two more suffice.
  CHECK_THAT(Explained(server, round), Contains("it succeeds if 2 more contributions have come"));
  Fail(server, "w", false);
  const std::string text = Explained(server, round);
  CHECK_THAT(text, Contains("It will fail: it needs 2 more contributions, and only 1 task can still contribute"));
  CHECK_THAT(text, Contains("the data set is empty") && Contains("--state BURIED") && !Contains("suffice"));
}

TEST_CASE("Explain says what to do about tasks that failed for good") {
  CoreFederation server;
  v1::RoundSpec spec = ShortRound(2);
  spec.set_min_goal(1);
  const std::string round = server.CreateRound(spec);
  Fail(server, "w", true);
  CHECK_THAT(Explained(server, round), Contains("1 task failed for good") && Contains("the data set is empty") &&
                                           Contains("--state FAILED") && Contains("task requeue"));
}

TEST_CASE("Of a round that its deadline ended, explain says what the tasks waited for") {
  CoreFederation server;
  v1::RoundSpec spec = ShortRound(3);
  (*spec.mutable_listed()->mutable_tasks(2)->mutable_requirements())["zone"] = "eu";
  spec.mutable_retry()->set_failed_max(4);
  const std::string round = server.CreateRound(spec);
  Contribute(server, "w");
  Fail(server, "w", false);
  server.Advance(absl::Minutes(11));
  REQUIRE(server.GetRound(round).state() == v1::FAILED);
  const std::string text = Explained(server, round);
  CHECK_THAT(text, Contains("the deadline passed with 1 contribution;"));
  CHECK_THAT(text, Contains("2 tasks were not done when it ended; 1 was never given to a worker."));
  CHECK_THAT(text, Contains("1 wanted a worker with the labels zone=eu"));
  CHECK_THAT(text, Contains("was tried again after: the data set is empty"));
  CHECK_THAT(text, Contains("try: See which workers there are") && Contains("create the round again"));
}

TEST_CASE("Explain names the worker that comes nearest to what the tasks require, and what it lacks") {
  struct Case {
    std::map<std::string, std::string> labels;
    std::string says;
  };
  const Case kCases[] = {
      {{{"zone", "EU"}}, "worker w has zone=EU where zone=eu is required"},
      {{{"region", "eu"}}, "worker w has region=eu and no label zone"},
      {{{"gpu", "yes"}}, "worker w has no label zone"},
      {{}, "worker w has no label zone"},
  };
  for (const Case& wrong : kCases) {
    CoreFederation server;
    v1::RoundSpec spec = ShortRound(1);
    (*spec.mutable_listed()->mutable_tasks(0)->mutable_requirements())["zone"] = "eu";
    const std::string round = server.CreateRound(spec);
    v1::SyncRequest poll = Ask("w", 1);
    poll.mutable_labels()->insert(wrong.labels.begin(), wrong.labels.end());
    REQUIRE(server.Sync(poll).leases().empty());
    CHECK_THAT(Explained(server, round), Contains("The closest worker does not qualify: " + wrong.says + "."));
  }
}

TEST_CASE("Explain says what workers offer where none offers the computation, and that those who could are drained") {
  CoreFederation server;
  v1::RoundSpec spec = ShortRound(1);
  spec.mutable_computation()->set_name("noopp");
  const std::string mistyped = server.CreateRound(spec);
  server.Sync(Ask("w", 1));
  CHECK_THAT(Explained(server, mistyped), Contains("Workers offer noop."));
  v1::DrainWorkerRequest drain;
  drain.set_request_id("d");
  drain.set_worker("w");
  REQUIRE(server.Call<v1::DrainWorkerResponse>("InspectionService/DrainWorker", drain).ok());
  const std::string round = server.CreateRound(ShortRound(1));
  CHECK_THAT(Explained(server, round), Contains("1 worker could, but is drained") && Contains("worker drain --undo"));
}

TEST_CASE("Explain tells that the workers went, before two minutes are over") {
  CoreFederation server;
  server.Sync(Ask("w", 1));
  const std::string round = server.CreateRound(ShortRound(2));
  // It may be about to call again.
  CHECK_THAT(Explained(server, round), !Contains("connected"));
  server.Advance(absl::Seconds(48));
  CHECK_THAT(Explained(server, round), Contains("2 tasks are queued") &&
                                           Contains("1 worker could run them, but is not connected now: the last call "
                                                    "was 48s ago"));
  // One that waits for other work in a call is there, however long ago it called.
  v1::SyncRequest waiting = Ask("idle", 1);
  waiting.mutable_wait()->set_seconds(60);
  waiting.clear_computations();
  waiting.add_computations()->set_name("other");
  waiting.mutable_computations(0)->set_version(1);
  server.CallLater<v1::SyncResponse>("WorkService/Sync", waiting);
  CHECK_THAT(Explained(server, round), Contains("not connected now"));
}

TEST_CASE("Of a round that succeeded, explain only says how to read it") {
  CoreFederation server;
  const std::string round = server.CreateRound(ShortRound(1));
  Contribute(server, "w");
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  const v1::ExplainRoundResponse explained = Explain(server, round);
  CHECK(explained.reasons().empty());
  REQUIRE(explained.hints_size() == 1);
  CHECK_THAT(explained.hints(0), Contains("sheaf round result " + round));
}

TEST_CASE("How long a round took is said in milliseconds where it was short") {
  const std::pair<absl::Duration, std::string> kCases[] = {
      {absl::Microseconds(412), "412us"},     {absl::Microseconds(91'170), "91.2ms"},
      {absl::Microseconds(203'500), "204ms"}, {absl::Milliseconds(1290), "1.2s"},
      {absl::Milliseconds(72'900), "1m12s"},
  };
  for (const auto& [took, text] : kCases) {
    CoreFederation server;
    const std::string round = server.CreateRound(ShortRound(1));
    server.Advance(took);
    v1::CancelRoundRequest cancel;
    cancel.set_request_id("c");
    cancel.set_round(round);
    REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
    CHECK_THAT(Explained(server, round), Contains("CANCELLED after " + text + ": "));
  }
}

TEST_CASE("Explain says that no worker offers the computation") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_computation()->set_name("unheard_of");
  v1::ExplainRoundRequest request;
  request.set_round(server.CreateRound(spec));
  REQUIRE(server.Sync(Ask("w", 1)).leases().empty());
  const auto explained = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
  REQUIRE(explained.ok());
  REQUIRE_THAT(explained->ShortDebugString(),
               Catch::Contains("offers the computation") && Catch::Contains("unheard_of"));
  v1::DescribeQueueRequest queue;
  REQUIRE(server.Call<v1::DescribeQueueResponse>("InspectionService/DescribeQueue", queue)->num_unschedulable() == 1);
}

TEST_CASE("Where each task has a requirement of its own, some are explained, all are counted, and nobody waits") {
  constexpr int kTasks = 10'000;
  CoreFederation server;
  v1::RoundSpec spec = SumRound(kTasks);
  for (int i = 0; i < kTasks; ++i) {
    (*spec.mutable_listed()->mutable_tasks(i)->mutable_requirements())["client"] = std::to_string(i);
  }
  const std::string round = server.CreateRound(spec);
  v1::SyncRequest seventeen = Ask("w", 0);
  (*seventeen.mutable_labels())["client"] = "17";
  server.Sync(seventeen);
  const SystemClock clock;
  const absl::Time start = clock.Now();
  const auto queue =
      server.Call<v1::DescribeQueueResponse>("InspectionService/DescribeQueue", v1::DescribeQueueRequest());
  CHECK(queue->num_unschedulable() == kTasks - 1);
  // Milliseconds; minutes if the tasks are looked through for each requirement.
  CHECK(clock.Now() - start < absl::Seconds(2));
  v1::ExplainRoundRequest request;
  request.set_round(round);
  const auto explained = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
  REQUIRE(explained.ok());
  CHECK(explained->reasons_size() < 20);
  CHECK_THAT(explained->reasons(explained->reasons_size() - 1), Contains("9989 further requirements"));
}

}  // namespace
}  // namespace sheaf
