// What a restart of the server leaves of rounds, their spools and their metrics.
#include <catch2/catch.hpp>
#include <string>

#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Verdict = v1::ResultVerdict;

TEST_CASE("A restart in the middle of a round loses nothing that was accepted") {
  Limits limits;
  // With and without a checkpoint in between.
  limits.checkpoint_contributions = GENERATE(1, 2, 100);
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(4));
  for (int i = 0; i < 3; ++i) REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 3);
  REQUIRE(Contribute(server, "w", 0.5f) == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 3.5f);
}

TEST_CASE("However many rounds are live, all go on after a restart") {
  constexpr size_t kRounds = 2100;
  CoreFederation server;
  for (size_t i = 0; i < kRounds; ++i) server.CreateRound(SumRound(1));
  server.CrashAndRestart();
  CHECK(server.core().rounds().all().size() == kRounds);
}

TEST_CASE("A round that can no longer reach min_goal when its server starts fails at once") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(2));
  const v1::Lease lease = server.Sync(Ask("w", 1)).leases(0);
  // As a server of 0.1 left it.
  REQUIRE(server.store().BeginBatch().ok());
  REQUIRE(server.store()
              .EndAttempt({.task = *TaskId::Parse(lease.task()),
                           .token = LeaseToken(lease.lease_token()),
                           .outcome = AttemptOutcome::kFailed,
                           .to = TaskState::kFailed,
                           .now = server.clock().Now()})
              .ok());
  REQUIRE(server.store().CommitBatch().ok());
  server.CrashAndRestart();
  CHECK(server.GetRound(round).state() == v1::FAILED);
}

TEST_CASE(
    "After a restart with a clock that was set back a round ends within its deadline, and no task waits for years") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(1);
  spec.mutable_deadline()->set_seconds(3600);
  const std::string round = server.CreateRound(spec);
  const std::string retried = server.CreateRound(SumRound(1));
  server.Sync(Ask("w", 2));
  server.clock().Advance(-absl::Hours(24 * 365));
  server.CrashAndRestart();
  // The leases end within their duration.
  server.Advance(absl::Minutes(1));
  CHECK(server.GetTask(retried + "/0").state() == v1::QUEUED);
  server.Advance(absl::Hours(1));
  CHECK(server.GetRound(round).state() == v1::FAILED);
}

TEST_CASE("What lies in the spool takes up the same room there after a restart, and none when its round has ended") {
  Limits limits;
  limits.spool_bytes_max = 60;  // One contribution, and not two.
  CoreFederation server(limits);
  const std::string first = server.CreateRound(SumRound(2));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  server.CrashAndRestart();
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = Result(server.Sync(Ask("w", 1)).leases(0), 1);
  const absl::Status refused = server.Call<v1::SyncResponse>("WorkService/Sync", request).status();
  CHECK_THAT(refused.ToString(), Contains("spool_bytes_max = 60"));
  // A checkpoint has made room.
  CHECK(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(first).state() == v1::SUCCEEDED);
  for (int i = 0; i < 3; ++i) {
    server.CreateRound(SumRound(1));
    CHECK(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  }
}

TEST_CASE("An EPHEMERAL round spools nothing, and its tasks run again after a crash") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  Contribute(server, "w", 1);
  Contribute(server, "w", 1);
  REQUIRE(server.payloads().ListRounds()->empty());
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 0);
  for (int i = 0; i < 3; ++i) Contribute(server, "w", 2);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 6);
}

TEST_CASE("An EPHEMERAL round that a crash finds sealing collects its contributions again") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(2);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  v1::SyncRequest last = Ask("w", 0);
  *last.add_results() = Result(granted.leases(0), 1);
  // Accepted, and the process ends before the batch in which the aggregate is made.
  const auto answer = server.CallInOneBatch<v1::SyncResponse>("WorkService/Sync", last);
  REQUIRE(answer->has_value());
  REQUIRE((**answer)->verdicts(0).verdict() == Verdict::ACCEPTED);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).state() == v1::COLLECTING);
  for (int i = 0; i < 2; ++i) REQUIRE(Contribute(server, "w", 3) == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 6);
}

// As Contribute, with the metric "loss".
void ContributeWithLoss(CoreFederation& server, double loss) {
  const v1::SyncResponse granted = server.Sync(Ask("w", 1));
  v1::TaskResult result = Result(granted.leases(0), 1);
  v1::Contribution contribution;
  contribution.ParseFromString(result.contribution());
  (*contribution.mutable_metrics())["loss"] = loss;
  result.set_contribution(contribution.SerializeAsString());
  v1::SyncRequest request = Ask("w", 0);
  *request.add_results() = result;
  REQUIRE(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
}

TEST_CASE("What an EPHEMERAL round forgot in a crash is not in its metrics either") {
  const bool forgets = GENERATE(true, false);
  Limits limits;
  limits.checkpoint_contributions = 2;
  CoreFederation server(limits);
  v1::RoundSpec spec = SumRound(4);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  // The first two are in a checkpoint.
  for (const double loss : {1.0, 2.0}) ContributeWithLoss(server, loss);
  if (forgets) ContributeWithLoss(server, 100);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 2);
  for (const double loss : {4.0, 5.0}) ContributeWithLoss(server, loss);
  REQUIRE(server.GetRound(round).metrics().at("loss") == 3);
}

TEST_CASE("The metrics that a checkpoint of an EPHEMERAL round contains outlive every crash after it") {
  // Of the process that wrote the checkpoint, or of the one after.
  const bool restarts_before = GENERATE(false, true);
  Limits limits;
  limits.checkpoint_contributions = 2;
  CoreFederation server(limits);
  v1::RoundSpec spec = SumRound(5);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  for (const double loss : {1.0, 2.0}) ContributeWithLoss(server, loss);
  if (restarts_before) server.CrashAndRestart();
  ContributeWithLoss(server, 4);
  const auto stored = DecodeProgress(*server.store().GetRound(RoundId(round)));
  REQUIRE(stored.ok());
  REQUIRE(stored->metrics.contains("loss"));
  CHECK(stored->metrics.at("loss") == 3);
}

}  // namespace
}  // namespace sheaf
