// When checkpoints are written, what they cover and what they delete.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

TEST_CASE("Of the checkpoints of a round only the newest stays") {
  Limits limits;
  limits.checkpoint_contributions = 1;
  CoreFederation server(limits);
  const RoundId round(server.CreateRound(SumRound(4)));
  for (int i = 1; i <= 3; ++i) {
    REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
    CHECK(server.payloads().ReadCheckpoint(round, fmt::format("c{}", i)).ok());
    CHECK(absl::IsNotFound(server.payloads().ReadCheckpoint(round, fmt::format("c{}", i - 1)).status()));
  }
}

TEST_CASE("Two results of one batch are both there after a restart, although a checkpoint is due after each") {
  Limits limits;
  limits.checkpoint_contributions = 1;
  limits.checkpoint_spool_bytes = 1;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(3));
  const v1::SyncResponse granted = server.Sync(Ask("w", 3));
  REQUIRE(granted.leases_size() == 3);
  v1::SyncRequest request = Ask("w", 0);
  for (int i = 0; i < 2; ++i) *request.add_results() = Result(granted.leases(i), 1);
  REQUIRE(server.Sync(request).verdicts_size() == 2);
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 2);
  request.clear_results();
  *request.add_results() = Result(granted.leases(2), 0.5f);
  REQUIRE(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  REQUIRE(FirstOf(server.ReadAggregate(round)) == 2.5f);
}

TEST_CASE("A graceful stop checkpoints what was accepted in the same batch") {
  CoreFederation server;
  v1::RoundSpec spec = SumRound(3);
  spec.set_durability(v1::EPHEMERAL);
  const std::string round = server.CreateRound(spec);
  const v1::SyncResponse granted = server.Sync(Ask("w", 2));
  v1::SyncRequest request = Ask("w", 0);
  for (const v1::Lease& lease : granted.leases()) *request.add_results() = Result(lease, 1);
  server.Post([&](absl::Time now) {
    server.core().sync().Answer(request, CallId(), Identity::Anybody(), now,
                                [](const absl::StatusOr<v1::SyncResponse>& answer) {
                                  REQUIRE(answer->verdicts(0).verdict() == Verdict::ACCEPTED);
                                });
    server.core().CheckpointAll(now);
  });
  server.Run();
  server.CrashAndRestart();
  REQUIRE(server.GetRound(round).num_contributions() == 2);
}

TEST_CASE("A checkpoint of an EPHEMERAL round has two contributions and min_clients clients more than the last one") {
  for (const int min_clients : {0, 3}) {
    Limits limits;
    limits.checkpoint_contributions = 1;
    CoreFederation server(limits);
    v1::RoundSpec spec = SumRound(10);
    spec.set_durability(v1::EPHEMERAL);
    spec.set_min_clients(min_clients);
    const std::string round = server.CreateRound(spec);
    const int more = std::max(2, min_clients);
    for (int kept = 0; kept < 3 * more; kept += more) {
      for (int i = 1; i < more; ++i) REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
      server.Run();
      server.CrashAndRestart();
      REQUIRE(server.GetRound(round).num_contributions() == kept);
      for (int i = 0; i < more; ++i) REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
      server.Run();
      server.CrashAndRestart();
      REQUIRE(server.GetRound(round).num_contributions() == kept + more);
    }
  }
}

TEST_CASE("A checkpoint deletes the contributions that it covers") {
  Limits limits;
  limits.checkpoint_contributions = 2;
  CoreFederation server(limits);
  const std::string round = server.CreateRound(SumRound(4));
  Contribute(server, "w", 1);
  const auto spooled = server.store().ListContributions(RoundId(round), 0, 10);
  Contribute(server, "w", 1);
  const auto record = server.store().GetRound(RoundId(round));
  REQUIRE(record->checkpoint_sequence == 2);
  REQUIRE(absl::IsNotFound(server.payloads().ReadFromSpool(RoundId(round), spooled->front().payload).status()));
}

}  // namespace
}  // namespace sheaf
