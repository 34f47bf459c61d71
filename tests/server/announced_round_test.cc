// Announced rounds: prepared before their broadcast is known, and opened by it.
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "aggregation/wire/safetensors.h"
#include "base/checksum.h"
#include "proto/time.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Verdict = v1::ResultVerdict;

v1::RoundSpec Announced(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.set_announced(true);
  return spec;
}

// A worker that would prepare so many tasks, and run none.
v1::SyncRequest AskAhead(const std::string& worker, int want_announced) {
  v1::SyncRequest request = Ask(worker, 0);
  request.set_protocol_version(2);
  request.set_poll_id("ahead");
  request.set_want_announced(want_announced);
  return request;
}

v1::HeldLease HeldAhead(const v1::Lease& lease, int64_t progress) {
  v1::HeldLease held = Held(lease, progress);
  held.set_announced(true);
  return held;
}

absl::StatusOr<v1::OpenRoundResponse> Open(CoreFederation& server, const std::string& round,
                                           const std::string& broadcast = "", const std::string& digest = "") {
  v1::OpenRoundRequest request;
  request.set_request_id("open");
  request.set_round(round);
  request.set_broadcast(broadcast);
  request.set_broadcast_digest(digest);
  return server.Call<v1::OpenRoundResponse>("RoundService/OpenRound", request);
}

std::string Broadcast(float value) {
  NamedTensor tensor{.name = "w", .dtype = v1::FLOAT32, .shape = {1}, .data = std::string(4, '\0')};
  std::memcpy(tensor.data.data(), &value, sizeof(value));
  return EncodeSafetensors(std::vector<NamedTensor>{tensor}, {});
}

TEST_CASE("A task of an announced round is given only to who asks for tasks to prepare") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(2));
  CHECK(server.GetRound(round).state() == v1::ANNOUNCED);
  CHECK(server.Sync(Ask("w1", 2)).leases().empty());
  const v1::SyncResponse given = server.Sync(AskAhead("w1", 1));
  REQUIRE(given.leases_size() == 1);
  CHECK(given.leases(0).announced());
  CHECK(given.leases(0).broadcast_digest().empty());
  CHECK(given.has_announced());
  // Who runs and prepares is given both, each from its kind.
  const std::string open = server.CreateRound(SumRound(5));
  v1::SyncRequest both = AskAhead("w2", 5);
  both.set_want(1);
  const v1::SyncResponse answer = server.Sync(both);
  REQUIRE(answer.leases_size() == 2);
  CHECK(answer.leases(0).round() == open);
  CHECK_FALSE(answer.leases(0).announced());
  CHECK(answer.leases(1).round() == round);
}

TEST_CASE("Who prepared hears OPENED with the broadcast in its parked call, and again until it says so") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(1));
  const v1::Lease lease = server.Sync(AskAhead("w", 1)).leases(0);
  v1::SyncRequest wait = AskAhead("w", 0);
  *wait.add_held() = HeldAhead(lease, 1);
  *wait.mutable_wait() = ToProto(absl::Seconds(20));
  const auto parked = server.CallLater<v1::SyncResponse>("WorkService/Sync", wait);
  CHECK_FALSE(parked->has_value());
  const std::string broadcast = Broadcast(1);
  const absl::StatusOr<v1::OpenRoundResponse> opened = Open(server, round, broadcast);
  REQUIRE(opened.ok());
  CHECK(opened->round().state() == v1::COLLECTING);
  CHECK(opened->round().spec().broadcast_digest() == Sha256Hex(broadcast));
  REQUIRE(parked->has_value());
  REQUIRE((*parked)->ok());
  CHECK((**parked)->held(0).verdict() == v1::LeaseUpdate::OPENED);
  CHECK((**parked)->held(0).broadcast_digest() == Sha256Hex(broadcast));
  // That answer was lost.
  CHECK(server.Sync(wait).held(0).verdict() == v1::LeaseUpdate::OPENED);
  v1::SyncRequest knows = Ask("w", 0);
  *knows.add_held() = Held(lease, 2);
  CHECK(server.Sync(knows).held(0).verdict() == v1::LeaseUpdate::HELD);
  v1::SyncRequest done = Ask("w", 0);
  *done.add_results() = Result(lease, 3);
  CHECK(server.Sync(done).verdicts(0).verdict() == Verdict::ACCEPTED);
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(FirstOf(server.ReadAggregate(round)) == 3);
}

TEST_CASE("When a round opens, tasks that nobody prepared go to whoever waits for work") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(1));
  v1::SyncRequest ask = Ask("old", 1);
  ask.set_protocol_version(1);
  *ask.mutable_wait() = ToProto(absl::Seconds(20));
  const auto parked = server.CallLater<v1::SyncResponse>("WorkService/Sync", ask);
  REQUIRE_FALSE(parked->has_value());
  REQUIRE(Open(server, round).ok());
  REQUIRE(parked->has_value());
  REQUIRE((**parked)->leases_size() == 1);
  CHECK_FALSE((**parked)->leases(0).announced());
}

TEST_CASE(
    "Opening again with the same broadcast changes nothing; with another it is refused, and so is whatever was "
    "not announced or has ended") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(1));
  const std::string broadcast = Broadcast(1);
  const v1::Round opened = Open(server, round, broadcast)->round();
  CHECK(Open(server, round, broadcast)->round().etag() == opened.etag());
  CHECK(Open(server, round, "", Sha256Hex(broadcast)).ok());
  const absl::Status other = Open(server, round, Broadcast(2)).status();
  CHECK(absl::IsFailedPrecondition(other));
  CHECK_THAT(std::string(other.message()), Contains(round) && Contains("opened with the broadcast"));
  const absl::Status unannounced = Open(server, server.CreateRound(SumRound(1)), broadcast).status();
  CHECK_THAT(std::string(unannounced.message()), Contains("was not announced"));
  CHECK(absl::IsNotFound(Open(server, "r-nothere1", broadcast).status()));
  const std::string waits = server.CreateRound(Announced(1));
  CHECK(absl::IsNotFound(Open(server, waits, "", std::string(64, 'e')).status()));
  CHECK_THAT(std::string(Open(server, waits, "", "E").status().message()), Contains("broadcast_digest"));
  CHECK_THAT(std::string(Open(server, waits, broadcast, std::string(64, 'e')).status().message()),
             Contains("has another"));
  CHECK(server.GetRound(waits).state() == v1::ANNOUNCED);
  server.Advance(absl::Hours(1));
  CHECK(server.GetRound(waits).state() == v1::FAILED);
  const absl::Status late = Open(server, waits, broadcast).status();
  CHECK(absl::IsFailedPrecondition(late));
  CHECK_THAT(std::string(late.message()), Contains("is FAILED, it was announced, and not opened within 1h"));
}

TEST_CASE("What an announced round may not say is refused with the field's name") {
  CoreFederation server;
  v1::CreateRoundRequest request;
  request.set_request_id("r");
  *request.mutable_spec() = Announced(1);
  request.mutable_spec()->set_broadcast_digest(std::string(64, 'a'));
  CHECK_THAT(std::string(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status().message()),
             Contains("spec.announced") && Contains("spec.broadcast_digest"));
  request.mutable_spec()->clear_broadcast_digest();
  request.set_broadcast(Broadcast(1));
  CHECK_THAT(std::string(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status().message()),
             Contains("leave CreateRoundRequest.broadcast empty"));
  request.clear_broadcast();
  request.mutable_spec()->set_announced(false);
  *request.mutable_spec()->mutable_announce_deadline() = ToProto(absl::Seconds(1));
  CHECK_THAT(std::string(server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status().message()),
             Contains("spec.announce_deadline"));
}

TEST_CASE("A request that announced a round gets that round again, also after it was opened") {
  CoreFederation server;
  v1::CreateRoundRequest request;
  request.set_request_id("same");
  *request.mutable_spec() = Announced(1);
  const std::string id = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request)->round().id();
  REQUIRE(Open(server, id, Broadcast(1)).ok());
  const auto again = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  REQUIRE(again.ok());
  CHECK(again->round().id() == id);
  CHECK(again->round().state() == v1::COLLECTING);
}

TEST_CASE("A prepared lease is renewed while it waits; its deadline, and the round's, count from the opening") {
  CoreFederation server;
  v1::RoundSpec spec = Announced(1);
  *spec.mutable_announce_deadline() = ToProto(absl::Minutes(10));
  *spec.mutable_deadline() = ToProto(absl::Minutes(2));
  *spec.mutable_attempt_deadline() = ToProto(absl::Minutes(1));
  const std::string round = server.CreateRound(spec);
  const v1::Lease lease = server.Sync(AskAhead("w", 1)).leases(0);
  int64_t progress = 0;
  for (int i = 0; i < 15; ++i) {
    server.Advance(absl::Seconds(20));
    v1::SyncRequest renew = AskAhead("w", 0);
    *renew.add_held() = HeldAhead(lease, ++progress);
    REQUIRE(server.Sync(renew).held(0).verdict() == v1::LeaseUpdate::HELD);
  }
  REQUIRE(Open(server, round).ok());
  const absl::Time opened = server.clock().Now();
  CHECK(FromProto(server.GetRound(round).deadline_time()) == opened + absl::Minutes(2));
  v1::SyncRequest hear = AskAhead("w", 0);
  *hear.add_held() = HeldAhead(lease, ++progress);
  REQUIRE(server.Sync(hear).held(0).verdict() == v1::LeaseUpdate::OPENED);
  // From here on the attempt has its minute, however often it makes progress.
  for (int i = 0; i < 3; ++i) {
    server.Advance(absl::Seconds(19));
    v1::SyncRequest renew = Ask("w", 0);
    *renew.add_held() = Held(lease, ++progress);
    REQUIRE(server.Sync(renew).held(0).verdict() == v1::LeaseUpdate::HELD);
  }
  server.Advance(absl::Seconds(4));
  CHECK(server.GetTask(lease.task()).num_lost() == 1);
  CHECK(server.GetTask(lease.task()).state() == v1::QUEUED);
}

TEST_CASE("A worker that vanishes while it prepares loses its task like any other, and the next one prepares it") {
  CoreFederation server;
  server.CreateRound(Announced(1));
  const v1::Lease first = server.Sync(AskAhead("w1", 1)).leases(0);
  CHECK(server.Sync(AskAhead("w2", 1)).leases().empty());
  server.Advance(absl::Seconds(30));
  const v1::SyncResponse next = server.Sync(AskAhead("w2", 1));
  REQUIRE(next.leases_size() == 1);
  CHECK(next.leases(0).task() == first.task());
  CHECK(next.leases(0).attempt() == 2);
}

TEST_CASE("A prepared task may fail, be given back, and be cancelled with its round; a contribution to it is refused") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(3));
  const v1::SyncResponse given = server.Sync(AskAhead("w", 3));
  REQUIRE(given.leases_size() == 3);
  v1::SyncRequest report = AskAhead("w", 0);
  *report.add_results() = Failure(given.leases(0), "no such data");
  *report.add_results() = Result(given.leases(1), 1);
  v1::TaskResult* back = report.add_results();
  back->set_task(given.leases(2).task());
  back->set_lease_token(given.leases(2).lease_token());
  back->mutable_release()->set_reason("stopping");
  const v1::SyncResponse answer = server.Sync(report);
  CHECK(answer.verdicts(0).verdict() == Verdict::ACCEPTED);
  CHECK(answer.verdicts(1).verdict() == Verdict::REJECTED);
  CHECK_THAT(answer.verdicts(1).message(), Contains("before the round was opened"));
  CHECK(answer.verdicts(2).verdict() == Verdict::ACCEPTED);
  CHECK(server.GetRound(round).num_contributions() == 0);
  CHECK(server.GetTask(given.leases(0).task()).num_failed() == 1);
  const v1::SyncResponse again = server.Sync(AskAhead("w", 1));
  REQUIRE(again.leases_size() == 1);
  v1::CancelRoundRequest cancel;
  cancel.set_request_id("c");
  cancel.set_round(round);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", cancel).ok());
  v1::SyncRequest hear = AskAhead("w", 0);
  *hear.add_held() = HeldAhead(again.leases(0), 1);
  CHECK(server.Sync(hear).held(0).verdict() == v1::LeaseUpdate::CANCELLED);
}

TEST_CASE("An announced round, its leases, and what opened it survive a crash") {
  CoreFederation server;
  const std::string waits = server.CreateRound(Announced(1));
  const v1::Lease lease = server.Sync(AskAhead("w", 1)).leases(0);
  server.CrashAndRestart();
  CHECK(server.GetRound(waits).state() == v1::ANNOUNCED);
  v1::SyncRequest renew = AskAhead("w", 0);
  *renew.add_held() = HeldAhead(lease, 1);
  CHECK(server.Sync(renew).held(0).verdict() == v1::LeaseUpdate::HELD);
  const std::string broadcast = Broadcast(1);
  REQUIRE(Open(server, waits, broadcast).ok());
  server.CrashAndRestart();
  CHECK(server.GetRound(waits).state() == v1::COLLECTING);
  CHECK(server.GetRound(waits).spec().broadcast_digest() == Sha256Hex(broadcast));
  const v1::LeaseUpdate update = server.Sync(renew).held(0);
  CHECK(update.verdict() == v1::LeaseUpdate::OPENED);
  CHECK(update.broadcast_digest() == Sha256Hex(broadcast));
}

TEST_CASE("What an announced round waits for is explained") {
  CoreFederation server;
  const std::string round = server.CreateRound(Announced(2));
  server.Sync(AskAhead("w", 1));
  v1::ExplainRoundRequest request;
  request.set_round(round);
  const auto explained = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
  REQUIRE(explained.ok());
  CHECK_THAT(explained->summary(), Contains("is announced, and waits for its broadcast; 1h"));
  CHECK_THAT(explained->reasons(0), Contains("Workers prepare 1 of its 2 tasks"));
}

}  // namespace
}  // namespace sheaf
