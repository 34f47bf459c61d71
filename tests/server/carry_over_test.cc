// Rounds that continue others: tasks that still run are carried over, and their workers need not know.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "aggregation/round_accumulator.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/contributions/staleness_discount.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

// `num_tasks` tasks, of which `goal` contributions are enough.
v1::RoundSpec Buffer(int num_tasks, int goal) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.set_goal(goal);
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(30));
  return spec;
}
v1::RoundSpec Continuing(const std::string& before, int num_tasks, int goal) {
  v1::RoundSpec spec = Buffer(num_tasks, goal);
  spec.set_continues(before);
  // Its own tasks come behind those of the round before.
  spec.set_priority(4);
  return spec;
}
v1::RoundSpec Announced(v1::RoundSpec spec) {
  spec.set_announced(true);
  return spec;
}

absl::StatusOr<v1::Round> Open(CoreFederation& server, const std::string& round, const std::string& broadcast = "") {
  v1::OpenRoundRequest request;
  request.set_request_id("open " + round);
  request.set_round(round);
  request.set_broadcast(broadcast);
  ASSIGN_OR_RETURN(const v1::OpenRoundResponse response,
                   server.Call<v1::OpenRoundResponse>("RoundService/OpenRound", request));
  return response.round();
}

absl::Status Refusal(CoreFederation& server, const v1::RoundSpec& spec, const std::string& request_id = "refused") {
  v1::CreateRoundRequest request;
  request.set_request_id(request_id);
  *request.mutable_spec() = spec;
  return server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request).status();
}

v1::Lease Lease(CoreFederation& server, const std::string& worker) {
  const v1::SyncResponse response = server.Sync(Ask(worker, 1));
  REQUIRE(response.leases_size() == 1);
  return response.leases(0);
}

Verdict::Verdict HandIn(CoreFederation& server, const std::string& worker, const v1::Lease& lease, float value) {
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_results() = Result(lease, value);
  const v1::SyncResponse response = server.Sync(request);
  REQUIRE(response.verdicts_size() == 1);
  // Under the name that it knows.
  CHECK(response.verdicts(0).task() == lease.task());
  return response.verdicts(0).verdict();
}

v1::LeaseUpdate Renew(CoreFederation& server, const std::string& worker, const v1::Lease& lease, int64_t progress) {
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_held() = Held(lease, progress);
  const v1::SyncResponse response = server.Sync(request);
  // The worker knows it: it is not sent again.
  CHECK(response.leases_size() == 0);
  REQUIRE(response.held_size() == 1);
  CHECK(response.held(0).task() == lease.task());
  return response.held(0);
}

std::map<int32_t, int64_t> Histogram(CoreFederation& server, const std::string& round) {
  const v1::Round shown = server.GetRound(round);
  return {shown.contributions_by_staleness().begin(), shown.contributions_by_staleness().end()};
}

TEST_CASE("A task that still runs when its round is sealed goes on in the round that continues it") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  const std::string second = server.CreateRound(Continuing(first, 2, 2));
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  CHECK(server.GetRound(first).state() == v1::SUCCEEDED);
  CHECK(server.GetRound(first).tasks().cancelled() == 1);
  CHECK(server.GetRound(second).tasks().leased() == 1);
  CHECK(server.GetTask(slow.task()).carried_to() == second + "/2");
  const v1::Task carried = server.GetTask(second + "/2");
  CHECK(carried.origin() == slow.task());
  CHECK(carried.staleness() == 1);
  // Its worker goes on as if nothing had happened.
  for (int i = 1; i <= 3; ++i) {
    server.Advance(absl::Seconds(20));
    CHECK(Renew(server, "slow", slow, i).verdict() == v1::LeaseUpdate::HELD);
  }
  REQUIRE(HandIn(server, "slow", slow, 10) == Verdict::ACCEPTED);
  CHECK(HandIn(server, "slow", slow, 10) == Verdict::DUPLICATE);
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 100) == Verdict::ACCEPTED);
  const v1::Round round = server.GetRound(second);
  CHECK(round.state() == v1::SUCCEEDED);
  CHECK(Histogram(server, second) == std::map<int32_t, int64_t>{{0, 1}, {1, 1}});
  CHECK(Histogram(server, first).empty());
  CHECK(FirstOf(server.ReadAggregate(first)) == 1);
  CHECK(FirstOf(server.ReadAggregate(second)) == 110);
  CHECK(HandIn(server, "slow", slow, 10) == Verdict::DUPLICATE);
}

TEST_CASE("Without a round that continues it, a sealed round's tasks are cancelled; so they are when it fails") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  CHECK(Renew(server, "slow", slow, 1).verdict() == v1::LeaseUpdate::CANCELLED);
  CHECK(HandIn(server, "slow", slow, 1) == Verdict::NOT_NEEDED);

  const std::string cancelled = server.CreateRound(Buffer(1, 1));
  const v1::Lease lease = Lease(server, "slow");
  const std::string next = server.CreateRound(Continuing(cancelled, 1, 1));
  v1::CancelRoundRequest request;
  request.set_request_id("cancel");
  request.set_round(cancelled);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", request).ok());
  CHECK(Renew(server, "slow", lease, 1).verdict() == v1::LeaseUpdate::CANCELLED);
  CHECK(server.GetRound(next).tasks().leased() == 0);
}

TEST_CASE("A carried task survives crashes, and is found under its name however many rounds it came through") {
  CoreFederation server;
  std::string round = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  for (int i = 1; i <= 3; ++i) {
    const std::string next = server.CreateRound(Announced(Continuing(round, 2, 1)));
    REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
    CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
    round = next;
    REQUIRE(Open(server, round).ok());
    server.CrashAndRestart();
    CHECK(Renew(server, "slow", slow, i).verdict() == v1::LeaseUpdate::HELD);
  }
  REQUIRE(HandIn(server, "slow", slow, 5) == Verdict::ACCEPTED);
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(Histogram(server, round) == std::map<int32_t, int64_t>{{3, 1}});
  CHECK(FirstOf(server.ReadAggregate(round)) == 5);
  server.CrashAndRestart();
  CHECK(HandIn(server, "slow", slow, 5) == Verdict::DUPLICATE);
}

TEST_CASE("A task that came through staleness.max rounds ends with its round: CANCELLED, and NOT_NEEDED") {
  CoreFederation server;
  std::string round = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  for (int i = 0; i < 2; ++i) {
    v1::RoundSpec spec = Continuing(round, 2, 1);
    spec.mutable_staleness()->set_max(1);
    const std::string next = server.CreateRound(Announced(spec));
    if (i == 1) CHECK(Renew(server, "slow", slow, 1).verdict() == v1::LeaseUpdate::HELD);
    REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
    round = next;
    REQUIRE(Open(server, round).ok());
  }
  CHECK(Renew(server, "slow", slow, 2).verdict() == v1::LeaseUpdate::CANCELLED);
  CHECK(HandIn(server, "slow", slow, 5) == Verdict::NOT_NEEDED);
  v1::StartUploadRequest upload;
  upload.set_request_id("upload");
  upload.set_size_bytes(100);
  upload.set_digest(Sha256Hex("x"));
  upload.mutable_contribution()->set_task(slow.task());
  upload.mutable_contribution()->set_lease_token(slow.lease_token());
  CHECK(server.Call<v1::StartUploadResponse>("BlobService/StartUpload", upload)->verdict() ==
        v1::StartUploadResponse::NOT_NEEDED);
}

// Of a weighted mean, discounted where it is stale.
v1::RoundSpec Discounting(v1::RoundSpec spec) {
  spec.mutable_aggregate()->mutable_outputs(0)->set_operator_("weighted_mean");
  if (!spec.continues().empty()) spec.mutable_staleness()->set_function(v1::POLYNOMIAL);
  return spec;
}

TEST_CASE("POLYNOMIAL discounts what is stale by its staleness, also where it is folded again") {
  CoreFederation server;
  std::string round = server.CreateRound(Discounting(Buffer(3, 1)));
  const v1::Lease slow = Lease(server, "slow");
  const v1::Lease slower = Lease(server, "slower");
  for (int i = 1; i <= 2; ++i) {
    const std::string next = server.CreateRound(Announced(Discounting(Continuing(round, 4, i == 1 ? 1 : 4))));
    REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
    CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
    round = next;
    REQUIRE(Open(server, round).ok());
  }
  CHECK(server.GetRound(round).spec().staleness().exponent() == 0.5);
  const auto weighted = [](v1::TaskResult result, float weight) {
    v1::Contribution contribution;
    REQUIRE(contribution.ParseFromString(result.contribution()));
    contribution.set_weight(weight);
    result.set_contribution(contribution.SerializeAsString());
    return result;
  };
  const auto hand_in = [&](const std::string& worker, const v1::Lease& lease, float value, float weight) {
    v1::SyncRequest request = Ask(worker, 0);
    *request.add_results() = weighted(Result(lease, value), weight);
    CHECK(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
  };
  // Before the rest, before the last one, or never.
  const int crash = GENERATE(1, 2, 0);
  CAPTURE(crash);
  hand_in("slow", slow, 10, 3);
  if (crash == 1) server.CrashAndRestart();
  hand_in("fast", Lease(server, "fast"), 100, 7);
  hand_in("slower", slower, 1000, 1);
  if (crash == 2) server.CrashAndRestart();
  hand_in("fast", Lease(server, "fast"), 10'000, 1);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  CHECK(Histogram(server, round) == std::map<int32_t, int64_t>{{0, 2}, {2, 2}});
  const float factor = static_cast<float>(1 / std::sqrt(3.0));
  const double of_slow = 3 * factor, of_slower = factor;
  const double weight = of_slow + 7 + of_slower + 1;
  CHECK(FirstOf(server.ReadAggregate(round)) ==
        static_cast<float>((of_slow * 10 + 7 * 100 + of_slower * 1000 + 10'000) / weight));
}

TEST_CASE("A partial aggregate of a stale task is refused where it cannot be discounted, and its task has ended") {
  CoreFederation server;
  const v1::RoundSpec spec = Discounting(Buffer(3, 1));
  const std::string first = server.CreateRound(spec);
  const v1::Lease slow = Lease(server, "slow");
  const std::string second = server.CreateRound(Discounting(Continuing(first, 2, 1)));
  const auto partial = [&](const v1::Lease& lease) {
    auto sum = RoundAccumulator::Create(spec.aggregate());
    REQUIRE(sum.ok());
    v1::Contribution contribution;
    REQUIRE(contribution.ParseFromString(Result(lease, 1).contribution()));
    const auto valid = sum->Validate(contribution);
    REQUIRE(valid.ok());
    for (int i = 0; i < 2; ++i) sum->Accumulate(*valid);
    v1::TaskResult result = Result(lease, 1);
    result.set_contribution(sum->PartialAggregate().SerializeAsString());
    return result;
  };
  const auto hand_in = [&](const std::string& worker, const v1::Lease& lease) {
    v1::SyncRequest request = Ask(worker, 0);
    *request.add_results() = partial(lease);
    return server.Sync(request).verdicts(0);
  };
  CHECK(hand_in("fast", Lease(server, "fast")).verdict() == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(first).state() == v1::SUCCEEDED);
  const Verdict refused = hand_in("slow", slow);
  CHECK(refused.verdict() == Verdict::REJECTED);
  CHECK(refused.message() ==
        "the task was carried through 1 round, and this one discounts what is stale (staleness.function POLYNOMIAL): a "
        "partial aggregate has its weights inside its states, where no discount reaches them");
  const v1::Task task = server.GetTask(slow.task());
  CHECK(server.GetTask(task.carried_to()).state() == v1::TASK_CANCELLED);
  CHECK(hand_in("fast", Lease(server, "fast")).verdict() == Verdict::ACCEPTED);
}

TEST_CASE("A discount is a power of the rounds that a task came through, in FLOAT32") {
  v1::StalenessPolicy policy;
  CHECK(StalenessDiscount(policy, 7) == 1);
  policy.set_function(v1::CONSTANT);
  CHECK(StalenessDiscount(policy, 7) == 1);
  policy.set_function(v1::POLYNOMIAL);
  policy.set_exponent(0.5);
  CHECK(StalenessDiscount(policy, 0) == 1);
  CHECK(StalenessDiscount(policy, 1) == 0.70710677f);
  CHECK(StalenessDiscount(policy, 3) == 0.5f);
  policy.set_exponent(1);
  CHECK(StalenessDiscount(policy, 2) == 1.0f / 3);
  policy.set_exponent(10);
  CHECK(StalenessDiscount(policy, 100) == static_cast<float>(1 / std::pow(101.0, 10)));
}

TEST_CASE("A carried task that is lost, fails or is given back is not run again") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(4, 1));
  const v1::Lease lost = Lease(server, "lost");
  const v1::Lease failed = Lease(server, "failed");
  const v1::Lease released = Lease(server, "released");
  const std::string second = server.CreateRound(Continuing(first, 1, 1));
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  CHECK(server.GetRound(second).tasks().leased() == 3);
  v1::SyncRequest request = Ask("failed", 0);
  *request.add_results() = Failure(failed, "it broke");
  CHECK(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
  request = Ask("released", 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(released.task());
  result.set_lease_token(released.lease_token());
  result.mutable_release()->set_reason("stopping");
  CHECK(server.Sync(request).verdicts(0).verdict() == Verdict::ACCEPTED);
  server.Advance(absl::Seconds(31));
  const v1::TaskCounts tasks = server.GetRound(second).tasks();
  CHECK(tasks.cancelled() == 3);
  CHECK(tasks.queued() == 1);
  CHECK(server.GetRound(second).num_lost_attempts() == 1);
  CHECK(HandIn(server, "lost", lost, 1) == Verdict::LEASE_LOST);
  CHECK(Renew(server, "lost", lost, 1).verdict() == v1::LeaseUpdate::CANCELLED);
  // The one task that anybody is given is the round's own.
  const v1::SyncResponse response = server.Sync(Ask("w", 9));
  REQUIRE(response.leases_size() == 1);
  CHECK(response.leases(0).task() == second + "/0");
}

TEST_CASE("A round that has its goal before it opens is sealed when it opens, with all that came") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(4, 1));
  const v1::Lease a = Lease(server, "a");
  const v1::Lease b = Lease(server, "b");
  const v1::Lease c = Lease(server, "c");
  const std::string second = server.CreateRound(Announced(Continuing(first, 2, 1)));
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  REQUIRE(HandIn(server, "a", a, 10) == Verdict::ACCEPTED);
  CHECK(server.GetRound(second).state() == v1::ANNOUNCED);
  server.CrashAndRestart();
  CHECK(server.GetRound(second).state() == v1::ANNOUNCED);
  REQUIRE(HandIn(server, "b", b, 100) == Verdict::ACCEPTED);
  // Who prepares it has nothing to hand in yet.
  v1::SyncRequest ahead = Ask("ahead", 0);
  ahead.set_protocol_version(2);
  ahead.set_want_announced(1);
  const v1::Lease prepared = server.Sync(ahead).leases(0);
  CHECK(prepared.announced());

  const std::string third = server.CreateRound(Announced(Continuing(second, 2, 1)));
  const auto opened = Open(server, second, "the broadcast");
  REQUIRE(opened.ok());
  const v1::Round round = server.GetRound(second);
  CHECK(round.state() == v1::SUCCEEDED);
  CHECK(FirstOf(server.ReadAggregate(second)) == 110);
  CHECK(Histogram(server, second) == std::map<int32_t, int64_t>{{1, 2}});
  // The rest goes on, one that has only prepared too: it runs on the broadcast that it was prepared for.
  CHECK(server.GetRound(third).tasks().leased() == 2);
  v1::SyncRequest request = Ask("ahead", 0);
  request.set_protocol_version(2);
  *request.add_held() = Held(prepared, 1);
  request.mutable_held(0)->set_announced(true);
  const v1::SyncResponse told = server.Sync(request);
  CHECK(v1::LeaseUpdate::Verdict_Name(told.held(0).verdict()) == "OPENED");
  CHECK(told.held(0).broadcast_digest() == Sha256Hex("the broadcast"));
  REQUIRE(HandIn(server, "ahead", prepared, 1000) == Verdict::ACCEPTED);
  REQUIRE(HandIn(server, "c", c, 10'000) == Verdict::ACCEPTED);
  REQUIRE(Open(server, third).ok());
  CHECK(Histogram(server, third) == std::map<int32_t, int64_t>{{1, 1}, {2, 1}});
  CHECK(FirstOf(server.ReadAggregate(third)) == 11'000);
}

TEST_CASE("The broadcasts that carried tasks began from are kept while a round may have such tasks") {
  Limits limits;
  limits.broadcast_linger = absl::Seconds(10);
  CoreFederation server(limits);
  const auto blob = [&](const std::string& bytes) { return *server.payloads().PutBlob(bytes); };
  v1::RoundSpec spec = Buffer(2, 1);
  spec.set_broadcast_digest(blob("broadcast 0"));
  std::string round = server.CreateRound(spec);
  const v1::Lease slow = Lease(server, "slow");
  for (int i = 1; i <= 2; ++i) {
    spec = Continuing(round, 2, 1);
    spec.mutable_staleness()->set_max(3);
    spec.set_broadcast_digest(blob("broadcast " + std::to_string(i)));
    const std::string next = server.CreateRound(spec);
    REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
    round = next;
    if (i == 2) server.CrashAndRestart();
    for (int64_t progress = 1; progress <= 3; ++progress) {
      server.Advance(absl::Seconds(20));
      REQUIRE(Renew(server, "slow", slow, 10 * i + progress).verdict() == v1::LeaseUpdate::HELD);
    }
    CHECK(server.payloads().HasBlob(slow.broadcast_digest()));
  }
  REQUIRE(HandIn(server, "slow", slow, 1) == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  server.Advance(absl::Seconds(25));
  CHECK_FALSE(server.payloads().HasBlob(slow.broadcast_digest()));
}

TEST_CASE("A parked call of who holds a carried task hears when the round is over that it is in by then") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  const std::string second = server.CreateRound(Continuing(first, 1, 1));
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  v1::SyncRequest request = Ask("slow", 0);
  *request.add_held() = Held(slow, 1);
  *request.mutable_wait() = ToProto(absl::Seconds(20));
  const auto parked = server.CallLater<v1::SyncResponse>("WorkService/Sync", request);
  REQUIRE_FALSE(parked->has_value());
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  REQUIRE(parked->has_value());
  CHECK((*parked)->value().held(0).verdict() == v1::LeaseUpdate::CANCELLED);
}

TEST_CASE("A large contribution to a carried task is uploaded under the name that its worker knows") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  const std::string second = server.CreateRound(Continuing(first, 1, 1));
  const std::string bytes = Result(slow, 3).contribution();
  v1::StartUploadRequest start;
  start.set_request_id("upload");
  start.set_size_bytes(static_cast<int64_t>(bytes.size()));
  start.set_digest(Sha256Hex(bytes));
  start.mutable_contribution()->set_task(slow.task());
  start.mutable_contribution()->set_lease_token(slow.lease_token());
  // Begun before it was carried over, and gone on with after.
  const auto begun = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  REQUIRE(begun->verdict() == v1::StartUploadResponse::SEND);
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  const auto again = server.Call<v1::StartUploadResponse>("BlobService/StartUpload", start);
  REQUIRE(again->verdict() == v1::StartUploadResponse::SEND);
  CHECK(again->upload_id() == begun->upload_id());
  REQUIRE(server.payloads().WriteChunk(UploadId(begun->upload_id()), 0, bytes).ok());
  REQUIRE(server.payloads().FinishUpload(UploadId(begun->upload_id())).ok());
  v1::SyncRequest request = Ask("slow", 0);
  v1::TaskResult& result = *request.add_results();
  result.set_task(slow.task());
  result.set_lease_token(slow.lease_token());
  result.set_upload_id(begun->upload_id());
  const v1::SyncResponse taken = server.Sync(request);
  CHECK(taken.verdicts(0).verdict() == Verdict::ACCEPTED);
  CHECK(FirstOf(server.ReadAggregate(second)) == 3);
}

TEST_CASE("After a crash an EPHEMERAL round does not wait for carried contributions that were forgotten") {
  CoreFederation server;
  v1::RoundSpec spec = Buffer(2, 1);
  spec.set_durability(v1::EPHEMERAL);
  const std::string first = server.CreateRound(spec);
  const v1::Lease slow = Lease(server, "slow");
  spec = Continuing(first, 2, 2);
  spec.set_durability(v1::EPHEMERAL);
  const std::string second = server.CreateRound(spec);
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  REQUIRE(HandIn(server, "slow", slow, 10) == Verdict::ACCEPTED);
  server.CrashAndRestart();
  CHECK(server.GetRound(second).num_contributions() == 0);
  CHECK(Histogram(server, second).empty());
  CHECK(HandIn(server, "slow", slow, 10) == Verdict::LEASE_LOST);
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 100) == Verdict::ACCEPTED);
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1000) == Verdict::ACCEPTED);
  CHECK(FirstOf(server.ReadAggregate(second)) == 1100);
}

TEST_CASE(
    "What is released has the bits of one round of the same contributions, carried over or not, whatever crashed") {
  // Sums of floats that differ with their order, unless they are exact.
  const float values[] = {1e8F, 0.1F, -1e8F, 3e-7F};
  CoreFederation plain;
  const std::string together = plain.CreateRound(Buffer(4, 4));
  for (const float value : values) REQUIRE(HandIn(plain, "w", Lease(plain, "w"), value) == Verdict::ACCEPTED);

  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(4, 1));
  const v1::Lease a = Lease(server, "a");
  const v1::Lease b = Lease(server, "b");
  const v1::Lease c = Lease(server, "c");
  const std::string second = server.CreateRound(Announced(Continuing(first, 4, 4)));
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 7) == Verdict::ACCEPTED);
  REQUIRE(HandIn(server, "c", c, values[3]) == Verdict::ACCEPTED);
  server.CrashAndRestart();
  REQUIRE(HandIn(server, "a", a, values[1]) == Verdict::ACCEPTED);
  REQUIRE(Open(server, second).ok());
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), values[2]) == Verdict::ACCEPTED);
  server.CrashAndRestart();
  REQUIRE(HandIn(server, "b", b, values[0]) == Verdict::ACCEPTED);
  const v1::Round round = server.GetRound(second);
  REQUIRE(round.state() == v1::SUCCEEDED);
  CHECK(round.aggregate().digest() == plain.GetRound(together).aggregate().digest());
}

TEST_CASE("A server that stops saves what an announced EPHEMERAL round has been brought") {
  CoreFederation server;
  v1::RoundSpec spec = Buffer(3, 1);
  spec.set_durability(v1::EPHEMERAL);
  const std::string first = server.CreateRound(spec);
  const v1::Lease a = Lease(server, "a");
  const v1::Lease b = Lease(server, "b");
  spec = Announced(Continuing(first, 2, 2));
  spec.set_durability(v1::EPHEMERAL);
  const std::string second = server.CreateRound(spec);
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  REQUIRE(HandIn(server, "a", a, 10) == Verdict::ACCEPTED);
  REQUIRE(HandIn(server, "b", b, 100) == Verdict::ACCEPTED);
  server.Post([&](absl::Time now) { server.core().CheckpointAll(now); });
  server.Run();
  server.CrashAndRestart();
  CHECK(server.GetRound(second).num_contributions() == 2);
  REQUIRE(Open(server, second).ok());
  CHECK(FirstOf(server.ReadAggregate(second)) == 110);
}

TEST_CASE("What a lease was promised for stays promised in a round of shorter leases") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  v1::RoundSpec spec = Continuing(first, 1, 1);
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(2));
  const std::string second = server.CreateRound(spec);
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  server.Advance(absl::Seconds(10));
  CHECK(FromProto(Renew(server, "slow", slow, 1).remaining()) == absl::Seconds(20));
  server.Advance(absl::Seconds(19));
  CHECK(FromProto(Renew(server, "slow", slow, 2).remaining()) == absl::Seconds(2));
  server.Advance(absl::Seconds(3));
  CHECK(HandIn(server, "slow", slow, 1) == Verdict::LEASE_LOST);
}

TEST_CASE("Who holds a carried task keeps it where a crash has the round before collect again") {
  CoreFederation server;
  v1::RoundSpec spec = Buffer(2, 1);
  spec.set_durability(v1::EPHEMERAL);
  const std::string first = server.CreateRound(spec);
  const v1::Lease slow = Lease(server, "slow");
  const v1::Lease fast = Lease(server, "fast");
  v1::RoundSpec next = Continuing(first, 2, 2);
  next.set_durability(v1::EPHEMERAL);
  const std::string second = server.CreateRound(next);
  v1::SyncRequest request = Ask("fast", 0);
  *request.add_results() = Result(fast, 1);
  // It is sealed, and nothing of its contribution is on a disk.
  REQUIRE((*server.CallInOneBatch<v1::SyncResponse>("WorkService/Sync", request))->ok());
  server.CrashAndRestart();
  CHECK(server.GetRound(first).state() == v1::COLLECTING);
  CHECK(server.GetRound(second).tasks().leased() == 1);
  CHECK(Renew(server, "slow", slow, 1).verdict() == v1::LeaseUpdate::HELD);
  CHECK(HandIn(server, "slow", slow, 10) == Verdict::ACCEPTED);
  CHECK(server.GetRound(second).num_contributions() == 1);
}

TEST_CASE("What cannot be continued is named, with the difference and the remedy") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const auto refused = [&](absl::StatusCode code, const std::string& said, const auto& change) {
    v1::RoundSpec spec = Continuing(first, 2, 1);
    change(spec);
    const absl::Status status = Refusal(server, spec);
    INFO(status.ToString());
    CHECK(status.code() == code);
    CHECK(std::string(status.message()).find(said) != std::string::npos);
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  constexpr auto kNotFound = absl::StatusCode::kNotFound;
  constexpr auto kNow = absl::StatusCode::kFailedPrecondition;
  refused(kNotFound, "population 'default' has no such round", [](auto& spec) { spec.set_continues("r-none"); });
  refused(kNotFound, "population 'other' has no such round", [](auto& spec) { spec.set_population("other"); });
  refused(kInvalid, "it is of job 'default', this one of 'b'", [](auto& spec) { spec.set_job("b"); });
  refused(kInvalid, "its computation is noop (version_min 0), that of this one other (version_min 0)",
          [](auto& spec) { spec.mutable_computation()->set_name("other"); });
  refused(kInvalid, "that of this one noop (version_min 2)",
          [](auto& spec) { spec.mutable_computation()->set_version_min(2); });
  refused(kInvalid, "and this one's only 1000", [](auto& spec) { spec.set_contribution_bytes_max(1000); });
  refused(kInvalid, "the aggregates differ in outputs[0].name: \"x\" -> \"y\"",
          [](auto& spec) { spec.mutable_aggregate()->mutable_outputs(0)->set_name("y"); });
  refused(kInvalid, "it is DURABLE, this one EPHEMERAL", [](auto& spec) { spec.set_durability(v1::EPHEMERAL); });
  refused(kInvalid, "it releases ", [](auto& spec) { spec.set_release(v1::PARTIAL_AGGREGATE); });
  v1::RoundSpec combining = Buffer(2, 1);
  combining.set_min_clients(3);
  const std::string of_three = server.CreateRound(combining);
  refused(kInvalid, "its min_clients is 3, and this one's only 1", [&](auto& spec) { spec.set_continues(of_three); });
  refused(kInvalid, "spec.staleness.max is -1", [](auto& spec) { spec.mutable_staleness()->set_max(-1); });
  refused(kInvalid, "spec.staleness is for a round that continues another", [](auto& spec) {
    spec.clear_continues();
    spec.mutable_staleness()->set_max(1);
  });
  refused(kInvalid, "spec.staleness.exponent is for POLYNOMIAL; leave it out",
          [](auto& spec) { spec.mutable_staleness()->set_exponent(1); });
  refused(kInvalid, "spec.staleness.function is not CONSTANT or POLYNOMIAL",
          [](auto& spec) { spec.mutable_staleness()->set_function(static_cast<v1::StalenessFunction>(7)); });
  const auto discounted = [&](const std::string& said, double exponent, auto... operators) {
    refused(kInvalid, said, [&](auto& spec) {
      spec.mutable_staleness()->set_function(v1::POLYNOMIAL);
      spec.mutable_staleness()->set_exponent(exponent);
      const v1::OutputSpec output = spec.aggregate().outputs(0);
      spec.mutable_aggregate()->clear_outputs();
      for (const char* symbol : {operators...}) {
        v1::OutputSpec& added = *spec.mutable_aggregate()->add_outputs();
        added = output;
        added.set_name(symbol);
        added.set_operator_(symbol);
      }
    });
  };
  discounted("spec.staleness.exponent is -1; it must be over 0, and at most 10, or 0 for 0.5", -1, "weighted_mean");
  discounted("spec.staleness.exponent is nan", std::numeric_limits<double>::quiet_NaN(), "weighted_mean");
  discounted("no output has an operator with weights, such as 'weighted_mean'; use one, or CONSTANT", 0, "sum", "max");
  discounted(
      "output 'mean': the discount of spec.staleness.function POLYNOMIAL is one of weights, and 'mean' has none; "
      "use 'weighted_mean'",
      0, "weighted_mean", "mean");
  // One at a time; whoever repeats the call has its round.
  const v1::RoundSpec spec = Announced(Continuing(first, 2, 1));
  REQUIRE(Refusal(server, spec, "second").ok());
  refused(kNow, "continues already; continue that one", [](auto&) {});
  CHECK(Refusal(server, spec, "second").ok());
  const v1::Lease slow = Lease(server, "slow");
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  // The round has one task more by now.
  CHECK(Refusal(server, spec, "second").ok());
  v1::RoundSpec more = spec;
  more.mutable_listed()->add_tasks();
  more.mutable_listed()->add_tasks();
  CHECK(absl::IsAlreadyExists(Refusal(server, more, "second")));
  refused(kNow, "which is SUCCEEDED: none of its tasks runs any more", [](auto&) {});
}

TEST_CASE("When the round that continues another has ended, a new one may") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  const std::string wrong = server.CreateRound(Continuing(first, 1, 1));
  v1::CancelRoundRequest request;
  request.set_request_id("cancel");
  request.set_round(wrong);
  REQUIRE(server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", request).ok());
  const std::string second = server.CreateRound(Continuing(first, 1, 1));
  server.CrashAndRestart();
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  CHECK(server.GetRound(second).tasks().leased() == 1);
  REQUIRE(HandIn(server, "slow", slow, 1) == Verdict::ACCEPTED);
}

TEST_CASE("What is explained of a round says where tasks come from and go to") {
  CoreFederation server;
  const std::string first = server.CreateRound(Buffer(2, 1));
  const v1::Lease slow = Lease(server, "slow");
  const std::string second = server.CreateRound(Announced(Continuing(first, 2, 2)));
  const auto explain = [&](const std::string& round) {
    v1::ExplainRoundRequest request;
    request.set_round(round);
    const auto response = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
    REQUIRE(response.ok());
    std::string text = response->summary();
    for (const std::string& reason : response->reasons()) text += "\n" + reason;
    return text;
  };
  CHECK_THAT(explain(first), Catch::Contains("go on in round " + second));
  REQUIRE(HandIn(server, "fast", Lease(server, "fast"), 1) == Verdict::ACCEPTED);
  CHECK_THAT(explain(second),
             Catch::Contains("Workers have 1 of its 3 tasks: they prepare them, or go on with those of"));
  REQUIRE(HandIn(server, "slow", slow, 1) == Verdict::ACCEPTED);
  CHECK_THAT(explain(second), Catch::Contains("1 contribution was accepted of tasks that were carried over"));
  REQUIRE(Open(server, second).ok());
  CHECK_THAT(explain(second), Catch::Contains("It continues round " + first));
}

}  // namespace
}  // namespace sheaf
