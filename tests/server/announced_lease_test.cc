// Leases of announced rounds, and what becomes of them when the round opens.
#include <catch2/catch.hpp>
#include <string>

#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

v1::RoundSpec Announced(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.set_announced(true);
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(30));
  *spec.mutable_attempt_deadline() = ToProto(absl::Minutes(5));
  return spec;
}

v1::SyncRequest AskAhead(const std::string& worker, int want) {
  v1::SyncRequest request = Ask(worker, 0);
  request.set_protocol_version(2);
  request.set_want_announced(want);
  request.set_poll_id("ahead");
  return request;
}

v1::HeldLease HeldAhead(const v1::Lease& lease, int64_t progress) {
  v1::HeldLease held = Held(lease, progress);
  held.set_announced(true);
  return held;
}

void Open(CoreFederation& server, const std::string& round) {
  v1::OpenRoundRequest request;
  request.set_request_id("open");
  request.set_round(round);
  REQUIRE(server.Call<v1::OpenRoundResponse>("RoundService/OpenRound", request).ok());
}

TaskRecord TaskOf(CoreFederation& server, const v1::Lease& lease) {
  return *server.store().GetTask(*TaskId::Parse(lease.task()));
}

TEST_CASE(
    "A worker restarted as an older version is not sent what it had to prepare, and has it once the round is open") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(1));
  const v1::SyncResponse ahead = server.Sync(AskAhead("w", 1));
  REQUIRE(ahead.leases_size() == 1);
  CHECK(ahead.leases(0).announced());
  v1::SyncRequest older = Ask("w", 1);
  older.set_protocol_version(1);
  CHECK(server.Sync(older).leases_size() == 0);
  // Whoever knows what it is gets it again.
  REQUIRE(server.Sync(AskAhead("w", 1)).leases_size() == 1);
  Open(server, round);
  const v1::SyncResponse open = server.Sync(older);
  REQUIRE(open.leases_size() == 1);
  CHECK_FALSE(open.leases(0).announced());
  v1::SyncRequest hand_in = Ask("w", 0);
  *hand_in.add_results() = Result(open.leases(0), 1);
  CHECK(server.Sync(hand_in).verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED);
}

TEST_CASE("Who hears that its round is open when the others are long done is told that its lease is lost, not OPENED") {
  CoreFederation server;
  v1::RoundSpec spec = Announced(4);
  spec.mutable_straggler()->set_deadline_factor(3);
  *spec.mutable_lease_duration() = ToProto(absl::Minutes(10));
  const std::string round = server.CreateRound(spec);
  const v1::Lease late = server.Sync(AskAhead("late", 1)).leases(0);
  const v1::SyncResponse others = server.Sync(AskAhead("w", 3));
  Open(server, round);
  server.Advance(absl::Seconds(1));
  for (const v1::Lease& lease : others.leases()) {
    v1::SyncRequest hand_in = Ask("w", 0);
    *hand_in.add_results() = Result(lease, 1);
    server.Sync(hand_in);
  }
  v1::SyncRequest hears = AskAhead("late", 0);
  *hears.add_held() = HeldAhead(late, int64_t{1} << 40);
  SECTION("in time") {
    const v1::LeaseUpdate update = server.Sync(hears).held(0);
    CHECK(update.verdict() == v1::LeaseUpdate::OPENED);
    CHECK(FromProto(update.remaining()) > absl::ZeroDuration());
    CHECK(FromProto(update.remaining()) < absl::Seconds(3));
  }
  SECTION("too late") {
    server.Advance(absl::Seconds(9));
    CHECK(server.Sync(hears).held(0).verdict() == v1::LeaseUpdate::LOST);
    CHECK(TaskOf(server, late).state == TaskState::kQueued);
    CHECK(TaskOf(server, late).num_lost == 1);
  }
}

TEST_CASE("The time of an attempt that was prepared counts from when its worker first hears that the round is open") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(2));
  const v1::SyncResponse ahead = server.Sync(AskAhead("w", 2));
  REQUIRE(ahead.leases_size() == 2);
  server.Advance(absl::Seconds(10));
  Open(server, round);
  server.Advance(absl::Seconds(1));
  // One that the worker holds, and one that it never heard of and is sent again.
  v1::SyncRequest request = AskAhead("w", 1);
  request.set_want(1);
  *request.add_held() = HeldAhead(ahead.leases(0), 1);
  const absl::Time end = server.clock().Now() + absl::Minutes(5);
  for (int i = 0; i < 2; ++i) {
    INFO(i);
    const v1::SyncResponse told = server.Sync(request);
    REQUIRE(told.held_size() == 1);
    CHECK(v1::LeaseUpdate::Verdict_Name(told.held(0).verdict()) == "OPENED");
    REQUIRE(told.leases_size() == 1);
    CHECK_FALSE(told.leases(0).announced());
    CHECK(TaskOf(server, ahead.leases(0)).attempt_deadline_time == end);
    CHECK(TaskOf(server, ahead.leases(1)).attempt_deadline_time == end);
    // Told again, it is no later.
    server.Advance(absl::Seconds(5));
  }
}

TEST_CASE("What a lease was promised for stays promised when its round opens") {
  CoreFederation server;
  v1::RoundSpec spec = Announced(1);
  *spec.mutable_attempt_deadline() = ToProto(absl::Seconds(2));
  const std::string round = server.CreateRound(spec);
  const v1::Lease lease = server.Sync(AskAhead("w", 1)).leases(0);
  const absl::Time promised = server.clock().Now() + FromProto(lease.remaining());
  Open(server, round);
  v1::SyncRequest request = AskAhead("w", 1);
  *request.add_held() = HeldAhead(lease, 0);
  REQUIRE(v1::LeaseUpdate::Verdict_Name(server.Sync(request).held(0).verdict()) == "OPENED");
  CHECK(TaskOf(server, lease).expire_time == promised);
  // And is not renewed beyond it.
  server.Advance(absl::Seconds(3));
  request.mutable_held(0)->set_progress(7);
  request.mutable_held(0)->set_announced(false);
  CHECK(server.Sync(request).held(0).verdict() == v1::LeaseUpdate::HELD);
  CHECK(TaskOf(server, lease).expire_time == promised);
}

TEST_CASE("An announced round is recovered as it was, and one that was opened with its broadcast") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(1));
  const v1::Lease lease = server.Sync(AskAhead("w", 1)).leases(0);
  server.CrashAndRestart();
  v1::SyncRequest request = AskAhead("w", 1);
  *request.add_held() = HeldAhead(lease, 1);
  CHECK(server.Sync(request).held(0).verdict() == v1::LeaseUpdate::HELD);
  const auto digest = server.payloads().PutBlob("the broadcast");
  REQUIRE(digest.ok());
  v1::OpenRoundRequest open;
  open.set_request_id("open");
  open.set_round(round);
  open.set_broadcast_digest(*digest);
  REQUIRE(server.Call<v1::OpenRoundResponse>("RoundService/OpenRound", open).ok());
  server.CrashAndRestart();
  const v1::SyncResponse told = server.Sync(request);
  CHECK(v1::LeaseUpdate::Verdict_Name(told.held(0).verdict()) == "OPENED");
  CHECK(told.held(0).broadcast_digest() == *digest);
}

TEST_CASE("What was looked for in vain to run is looked for to prepare, and the other way round") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(1));
  // Nothing to run; now there is something to prepare.
  v1::SyncRequest run = Ask("w", 1);
  // Whoever says something new of itself is looked at anew.
  run.set_protocol_version(2);
  CHECK(server.Sync(run).leases_size() == 0);
  CHECK(server.Sync(AskAhead("w", 1)).leases_size() == 1);
  // Nothing to prepare; a round that was there before has something to run.
  CHECK(server.Sync(AskAhead("v", 1)).leases_size() == 0);
  server.CreateRound(SumRound(1));
  CHECK(server.Sync(AskAhead("v", 1)).leases_size() == 0);
  run.set_worker("v");
  CHECK(server.Sync(run).leases_size() == 1);
}

TEST_CASE("A contribution that comes before its round has opened is REJECTED, and counts as a failed attempt") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(1));
  const v1::Lease lease = server.Sync(AskAhead("w", 1)).leases(0);
  v1::SyncRequest hand_in = Ask("w", 0);
  *hand_in.add_results() = Result(lease, 1);
  const v1::SyncResponse answer = server.Sync(hand_in);
  CHECK(v1::ResultVerdict::Verdict_Name(answer.verdicts(0).verdict()) == "REJECTED");
  CHECK_THAT(answer.verdicts(0).message(), Catch::Matchers::Contains("before the round was opened"));
  CHECK(TaskOf(server, lease).num_failed == 1);
  CHECK(server.GetRound(round).state() == v1::ANNOUNCED);
  CHECK(server.GetRound(round).num_contributions() == 0);
}

TEST_CASE("A prepared task whose round opens takes the place of one that its worker would have run") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(4));
  const v1::Lease ahead = server.Sync(AskAhead("w", 1)).leases(0);
  v1::SyncRequest one = Ask("w", 1);
  one.set_protocol_version(2);
  one.set_poll_id("one");
  *one.mutable_wait() = ToProto(absl::Seconds(20));
  *one.add_held() = HeldAhead(ahead, 1);
  const bool is_parked = GENERATE(true, false);
  INFO((is_parked ? "in a parked call" : "in a later call"));
  const auto parked = is_parked ? server.CallLater<v1::SyncResponse>("WorkService/Sync", one) : nullptr;
  Open(server, round);
  if (is_parked) REQUIRE(parked->has_value());
  const v1::SyncResponse told = is_parked ? ***parked : server.Sync(one);
  REQUIRE(told.held_size() == 1);
  CHECK(v1::LeaseUpdate::Verdict_Name(told.held(0).verdict()) == "OPENED");
  CHECK(told.leases_size() == 0);
  // Who has room for two gets another.
  one.set_want(2);
  CHECK(server.Sync(one).leases_size() == 1);
}

}  // namespace
}  // namespace sheaf
