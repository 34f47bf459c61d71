// Stragglers: second attempts, and deadlines by what others took.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "proto/time.h"
#include "server/core/leases/straggler_policy.h"
#include "server/stored/run_times.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round_service.pb.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;
using Verdict = v1::ResultVerdict;

v1::SyncRequest HandIn(const std::string& worker, const v1::TaskResult& result) {
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_results() = result;
  return request;
}

v1::RoundSpec StragglerRound(int num_tasks) {
  v1::RoundSpec spec = SumRound(num_tasks);
  spec.mutable_straggler()->set_speculate(true);
  *spec.mutable_lease_duration() = ToProto(absl::Minutes(10));
  return spec;
}

// Of `num_tasks` tasks "slow" has the first; the others were computed within 10 s of it. Returns the slow one.
v1::Lease AllButOneDone(CoreFederation& server, int num_tasks) {
  const v1::Lease slow = server.Sync(Ask("slow", 1)).leases(0);
  const v1::SyncResponse others = server.Sync(Ask("fast", num_tasks - 1));
  REQUIRE(others.leases_size() == num_tasks - 1);
  server.Advance(absl::Seconds(10));
  for (const v1::Lease& lease : others.leases()) {
    REQUIRE(server.Sync(HandIn("fast", Result(lease, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
  }
  return slow;
}

v1::LeaseUpdate::Verdict Renew(CoreFederation& server, const std::string& worker, const v1::Lease& lease,
                               int64_t progress) {
  v1::SyncRequest renew = Ask(worker, 0);
  *renew.add_held() = Held(lease, progress);
  return server.Sync(renew).held(0).verdict();
}

std::string Explained(CoreFederation& server, const std::string& round) {
  v1::ExplainRoundRequest request;
  request.set_round(round);
  const auto answer = server.Call<v1::ExplainRoundResponse>("InspectionService/ExplainRound", request);
  REQUIRE(answer.ok());
  std::string text = answer->summary();
  for (const std::string& reason : answer->reasons()) text += " " + reason;
  return text;
}

TEST_CASE("Quantiles of run times are at most a tenth too long, and survive being stored") {
  RunTimes times;
  CHECK(times.Quantile(0.5) == absl::ZeroDuration());
  for (int i = 1; i <= 100; ++i) times.Add(absl::Seconds(i));
  for (const double quantile : {0.01, 0.5, 0.75, 0.99}) {
    const absl::Duration exact = absl::Seconds(quantile * 100);
    CHECK(times.Quantile(quantile) >= exact - absl::Nanoseconds(1000));
    CHECK(times.Quantile(quantile) <= exact * 1.1 + absl::Nanoseconds(1000));
  }
  const RunTimes stored(times.buckets());
  CHECK(stored.count() == 100);
  CHECK(stored.Quantile(0.75) == times.Quantile(0.75));
  RunTimes extreme;
  extreme.Add(-absl::Seconds(1));
  extreme.Add(absl::InfiniteDuration());
  CHECK(extreme.Quantile(0.1) == absl::Milliseconds(1));
  CHECK(extreme.Quantile(1) > absl::Hours(24 * 365));
  CHECK(RunTimes({{3, -5}, {4, 0}}).count() == 0);
}

TEST_CASE(
    "An attempt is a straggler once nothing waits, few tasks run, enough have succeeded, and it took much longer") {
  v1::StragglerPolicy policy;
  policy.set_speculate(true);
  policy.set_remaining_share_max(0.25);
  policy.set_quantile(0.75);
  policy.set_factor(2);
  policy.set_finished_min(3);
  *policy.mutable_age_min() = ToProto(absl::Seconds(1));
  RunTimes finished;
  for (int i = 0; i < 3; ++i) finished.Add(absl::Seconds(10));
  const auto age = [&](const TaskCounts& tasks) {
    return StragglerAge({.policy = policy, .tasks = tasks, .finished = finished});
  };
  CHECK(age({.leased = 2, .succeeded = 6}) >= absl::Seconds(20));
  CHECK(age({.leased = 2, .succeeded = 6}) <= absl::Seconds(22));
  CHECK(age({.leased = 3, .succeeded = 5}) == absl::InfiniteDuration());
  CHECK(age({.queued = 1, .leased = 1, .succeeded = 6}) == absl::InfiniteDuration());
  // One always may.
  CHECK(age({.leased = 1, .succeeded = 1}) < absl::InfiniteDuration());
  CHECK(StragglersBegunBy({.policy = policy, .tasks = {.queued = 1}, .finished = finished}, absl::UnixEpoch()) ==
        absl::InfinitePast());
  *policy.mutable_age_min() = ToProto(absl::Minutes(1));
  CHECK(age({.leased = 1, .succeeded = 7}) == absl::Minutes(1));
  policy.set_finished_min(4);
  CHECK(age({.leased = 1, .succeeded = 7}) == absl::InfiniteDuration());
  v1::RoundSpec spec;
  spec.set_goal(8);
  *spec.mutable_straggler() = policy;
  spec.mutable_straggler()->set_deadline_factor(3);
  CHECK(FinishedForLimit(spec) == 6);
  for (int i = 4; i <= 6; ++i) {
    CHECK(AttemptLimit(spec, finished) == absl::InfiniteDuration());
    finished.Add(absl::Seconds(30));
  }
  CHECK(AttemptLimit(spec, finished) >= absl::Seconds(90));
  CHECK(AttemptLimit(spec, finished) <= absl::Seconds(100));
}

TEST_CASE("The task of a straggler is given to another worker, never to the same, and the first contribution wins") {
  for (const bool is_second_faster : {true, false}) {
    CoreFederation server;
    const std::string round = server.CreateRound(StragglerRound(4));
    const v1::Lease slow = AllButOneDone(server, 4);
    CHECK(server.Sync(Ask("idle", 1)).leases().empty());
    server.Advance(absl::Seconds(10));
    v1::SyncRequest of_holder = Ask("slow", 1);
    *of_holder.add_held() = Held(slow, 0);
    CHECK(server.Sync(of_holder).leases().empty());
    const v1::SyncResponse granted = server.Sync(Ask("idle", 1));
    REQUIRE(granted.leases_size() == 1);
    const v1::Lease second = granted.leases(0);
    CHECK(second.task() == slow.task());
    CHECK(second.attempt() == 2);
    CHECK(second.lease_token() != slow.lease_token());
    CHECK(server.Sync(Ask("third", 1)).leases().empty());
    v1::Task task = server.GetTask(slow.task());
    REQUIRE(task.attempts_size() == 2);
    CHECK_FALSE(task.attempts(0).is_speculative());
    CHECK(task.attempts(1).is_speculative());

    const std::string winner = is_second_faster ? "idle" : "slow";
    const std::string loser = is_second_faster ? "slow" : "idle";
    const v1::Lease& won = is_second_faster ? second : slow;
    const v1::Lease& lost = is_second_faster ? slow : second;
    CHECK(server.Sync(HandIn(winner, Result(won, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
    CHECK(Renew(server, loser, lost, 1) == v1::LeaseUpdate::CANCELLED);
    const Verdict::Verdict late = server.Sync(HandIn(loser, Result(lost, 100))).verdicts(0).verdict();
    CHECK(late != Verdict::ACCEPTED);
    CHECK(late != Verdict::REJECTED);
    CHECK(server.Sync(HandIn(winner, Result(won, 1))).verdicts(0).verdict() == Verdict::DUPLICATE);
    const v1::Round done = server.GetRound(round);
    CHECK(done.state() == v1::SUCCEEDED);
    CHECK(done.aggregate().num_contributions() == 4);
    CHECK(done.num_speculative_wins() == (is_second_faster ? 1 : 0));
    CHECK(FirstOf(server.ReadAggregate(round)) == 4);
  }
}

TEST_CASE("An EXACT aggregate has the same bits with and without speculation, whoever wins") {
  constexpr float kValues[] = {0.1F, 3e-7F, -1e20F, 1e20F};
  std::vector<std::string> aggregates;
  for (const int winner : {0, 1, 2}) {
    CoreFederation server;
    v1::RoundSpec spec = StragglerRound(4);
    if (winner == 0) spec.clear_straggler();
    const std::string round = server.CreateRound(spec);
    const v1::Lease slow = server.Sync(Ask("slow", 1)).leases(0);
    const v1::SyncResponse others = server.Sync(Ask("fast", 3));
    server.Advance(absl::Seconds(10));
    for (int i = 0; i < 3; ++i) {
      // In another order each time.
      const int place = (i + winner) % 3;
      server.Sync(HandIn("fast", Result(others.leases(place), kValues[place + 1])));
    }
    server.Advance(absl::Seconds(10));
    const v1::SyncResponse again = server.Sync(Ask("idle", 1));
    REQUIRE(again.leases_size() == (winner == 0 ? 0 : 1));
    const v1::SyncRequest first = HandIn("slow", Result(slow, kValues[0]));
    if (winner == 2) server.Sync(HandIn("idle", Result(again.leases(0), kValues[0])));
    server.Sync(first);
    if (winner == 1) server.Sync(HandIn("idle", Result(again.leases(0), kValues[0])));
    CHECK(server.GetRound(round).num_contributions() == 4);
    aggregates.push_back(server.ReadAggregate(round));
  }
  CHECK(aggregates[0] == aggregates[1]);
  CHECK(aggregates[0] == aggregates[2]);
}

TEST_CASE("Without a policy nothing is given out twice, however long it takes") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(4);
  spec.clear_straggler();
  server.CreateRound(spec);
  AllButOneDone(server, 4);
  server.Advance(absl::Minutes(5));
  CHECK(server.Sync(Ask("idle", 1)).leases().empty());
}

TEST_CASE(
    "A worker that waits is given the task of a straggler at the moment when it becomes one, also after a crash") {
  for (const bool crashes : {false, true}) {
    CoreFederation server;
    server.CreateRound(StragglerRound(4));
    const v1::Lease slow = AllButOneDone(server, 4);
    if (crashes) server.CrashAndRestart();
    v1::SyncRequest wait = Ask("idle", 1);
    *wait.mutable_wait() = ToProto(absl::Seconds(30));
    const auto answer = server.CallLater<v1::SyncResponse>("WorkService/Sync", wait);
    server.Advance(absl::Seconds(4));
    CHECK_FALSE(answer->has_value());
    server.Advance(absl::Seconds(3));
    REQUIRE(answer->has_value());
    REQUIRE(answer->value()->leases_size() == 1);
    CHECK(answer->value()->leases(0).task() == slow.task());
  }
}

TEST_CASE("The slower of two attempts is told that it may stop, while its round goes on") {
  CoreFederation server;
  server.CreateRound(StragglerRound(8));
  const v1::SyncResponse two = server.Sync(Ask("slow", 2));
  const v1::SyncResponse rest = server.Sync(Ask("fast", 6));
  server.Advance(absl::Seconds(10));
  for (const v1::Lease& lease : rest.leases()) server.Sync(HandIn("fast", Result(lease, 1)));
  server.Advance(absl::Seconds(10));
  const v1::SyncResponse granted = server.Sync(Ask("idle", 1));
  REQUIRE(granted.leases_size() == 1);
  REQUIRE(server.Sync(HandIn("idle", Result(granted.leases(0), 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
  for (const v1::Lease& lease : two.leases()) {
    const bool is_beaten = lease.task() == granted.leases(0).task();
    CHECK(Renew(server, "slow", lease, 1) == (is_beaten ? v1::LeaseUpdate::CANCELLED : v1::LeaseUpdate::HELD));
  }
}

TEST_CASE("The slower of two workers that waits with its lease is told at once that it is needed no more") {
  CoreFederation server;
  server.CreateRound(StragglerRound(5));
  const v1::SyncResponse two = server.Sync(Ask("slow", 2));
  const v1::SyncResponse rest = server.Sync(Ask("fast", 3));
  server.Advance(absl::Seconds(10));
  for (const v1::Lease& lease : rest.leases()) server.Sync(HandIn("fast", Result(lease, 1)));
  REQUIRE(server.Sync(HandIn("slow", Result(two.leases(1), 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
  server.Advance(absl::Seconds(10));
  const v1::SyncResponse granted = server.Sync(Ask("idle", 1));
  REQUIRE(granted.leases_size() == 1);
  v1::SyncRequest wait = Ask("slow", 1);
  *wait.mutable_wait() = ToProto(absl::Seconds(30));
  *wait.add_held() = Held(two.leases(0), 1);
  const auto answer = server.CallLater<v1::SyncResponse>("WorkService/Sync", wait);
  CHECK_FALSE(answer->has_value());
  server.Sync(HandIn("idle", Result(granted.leases(0), 1)));
  REQUIRE(answer->has_value());
  REQUIRE(answer->value()->held_size() == 1);
  CHECK(answer->value()->held(0).verdict() == v1::LeaseUpdate::CANCELLED);
}

TEST_CASE(
    "When one of two attempts is lost or fails, the task is not queued while the other runs; the limits count both") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(4);
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(30));
  spec.mutable_retry()->set_lost_max(2);
  spec.set_min_goal(1);
  const std::string round = server.CreateRound(spec);
  const v1::Lease slow = AllButOneDone(server, 4);
  server.Advance(absl::Seconds(10));
  const v1::Lease second = server.Sync(Ask("idle", 1)).leases(0);
  // The first one's lease runs out; the other goes on.
  server.Advance(absl::Seconds(16));
  v1::Task task = server.GetTask(slow.task());
  CHECK(task.state() == v1::LEASED);
  CHECK(task.num_lost() == 1);
  CHECK(task.worker() == "idle");
  CHECK(Renew(server, "slow", slow, 5) == v1::LeaseUpdate::LOST);
  CHECK(Renew(server, "idle", second, 1) == v1::LeaseUpdate::HELD);
  // It is a straggler's in turn, when it has run for long enough.
  const v1::Lease third = server.Sync(Ask("third", 1)).leases(0);
  CHECK(third.task() == slow.task());
  CHECK(third.attempt() == 3);
  CHECK(server.Sync(HandIn("third", Failure(third, "out of memory", true))).verdicts(0).verdict() == Verdict::ACCEPTED);
  CHECK(server.GetTask(slow.task()).state() == v1::LEASED);
  server.Advance(absl::Seconds(31));
  task = server.GetTask(slow.task());
  CHECK(task.state() == v1::BURIED);
  CHECK(task.num_lost() == 2);
  CHECK(task.num_failed() == 1);
  CHECK(server.GetRound(round).state() == v1::SUCCEEDED);
}

TEST_CASE("Two leases that run out at the same moment count twice against the limit") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(4);
  *spec.mutable_lease_duration() = ToProto(absl::Seconds(30));
  spec.mutable_retry()->set_lost_max(2);
  server.CreateRound(spec);
  const v1::Lease slow = AllButOneDone(server, 4);
  server.Advance(absl::Seconds(10));
  REQUIRE(Renew(server, "slow", slow, 1) == v1::LeaseUpdate::HELD);
  REQUIRE(server.Sync(Ask("idle", 1)).leases_size() == 1);
  server.Advance(absl::Seconds(30));
  const v1::Task task = server.GetTask(slow.task());
  CHECK(task.num_lost() == 2);
  CHECK(task.state() == v1::BURIED);
}

TEST_CASE("A second attempt is sent again if its answer was lost, and an operator takes both back") {
  CoreFederation server;
  server.CreateRound(StragglerRound(4));
  const v1::Lease slow = AllButOneDone(server, 4);
  server.Advance(absl::Seconds(10));
  const v1::Lease second = server.Sync(Ask("idle", 1)).leases(0);
  const v1::SyncResponse again = server.Sync(Ask("idle", 1));
  REQUIRE(again.leases_size() == 1);
  CHECK(again.leases(0).lease_token() == second.lease_token());
  CHECK(again.leases(0).attempt() == 2);
  v1::RequeueTaskRequest requeue;
  requeue.set_request_id("q");
  requeue.set_task(slow.task());
  REQUIRE(server.Call<v1::RequeueTaskResponse>("InspectionService/RequeueTask", requeue).ok());
  CHECK(Renew(server, "slow", slow, 5) == v1::LeaseUpdate::LOST);
  CHECK(Renew(server, "idle", second, 5) == v1::LeaseUpdate::LOST);
  CHECK(server.Sync(Ask("slow", 1)).leases(0).attempt() == 3);
}

TEST_CASE("An attempt that takes too many times what others took is lost, also one that was leased before they ended") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(4);
  spec.mutable_straggler()->set_speculate(false);
  spec.mutable_straggler()->set_deadline_factor(3);
  server.CreateRound(spec);
  const v1::Lease slow = AllButOneDone(server, 4);
  REQUIRE(Renew(server, "slow", slow, 1) == v1::LeaseUpdate::HELD);
  server.Advance(absl::Seconds(19));
  REQUIRE(Renew(server, "slow", slow, 2) == v1::LeaseUpdate::HELD);
  server.Advance(absl::Seconds(5));
  CHECK(Renew(server, "slow", slow, 3) == v1::LeaseUpdate::LOST);
  const v1::Task task = server.GetTask(slow.task());
  CHECK(task.state() == v1::QUEUED);
  CHECK_THAT(task.last_error(),
             Contains("as long as stragglers may take: 3 times the 0.75 quantile of the 3 attempts"));
}

TEST_CASE("A few that were quick do not make the others too slow") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(8);
  spec.mutable_straggler()->set_speculate(false);
  spec.mutable_straggler()->set_deadline_factor(3);
  server.CreateRound(spec);
  const v1::SyncResponse quick = server.Sync(Ask("quick", 3));
  server.Advance(absl::Milliseconds(100));
  for (const v1::Lease& lease : quick.leases()) server.Sync(HandIn("quick", Result(lease, 1)));
  const v1::Lease other = server.Sync(Ask("other", 1)).leases(0);
  server.Advance(absl::Seconds(1));
  CHECK(Renew(server, "other", other, 1) == v1::LeaseUpdate::HELD);
}

TEST_CASE("A lease that is short because others were quick grows when others take longer") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(8);
  spec.mutable_straggler()->set_speculate(false);
  spec.mutable_straggler()->set_deadline_factor(3);
  spec.mutable_straggler()->set_quantile(0.5);
  server.CreateRound(spec);
  const v1::SyncResponse slower = server.Sync(Ask("slower", 3));
  const v1::SyncResponse quick = server.Sync(Ask("quick", 4));
  server.Advance(absl::Seconds(1));
  for (const v1::Lease& lease : quick.leases()) server.Sync(HandIn("quick", Result(lease, 1)));
  const v1::Lease last = server.Sync(Ask("last", 1)).leases(0);
  CHECK(FromProto(last.remaining()) >= absl::Seconds(3));
  CHECK(FromProto(last.remaining()) < absl::Seconds(4));
  server.Advance(absl::Milliseconds(1'500));
  // The median of seven is one of theirs only if there are more of them.
  for (const v1::Lease& lease : slower.leases()) server.Sync(HandIn("slower", Result(lease, 1)));
  CHECK(Renew(server, "last", last, 1) == v1::LeaseUpdate::HELD);
  server.Advance(absl::Milliseconds(1'400));
  CHECK(Renew(server, "last", last, 2) == v1::LeaseUpdate::HELD);
}

TEST_CASE("Whose second attempt fails at once is not given the task again and again") {
  CoreFederation server;
  server.CreateRound(StragglerRound(4));
  const v1::Lease slow = AllButOneDone(server, 4);
  server.Advance(absl::Seconds(10));
  const v1::Lease second = server.Sync(Ask("bad", 1)).leases(0);
  server.Sync(HandIn("bad", Failure(second, "disk full")));
  CHECK(server.Sync(Ask("bad", 1)).leases().empty());
  CHECK(server.Sync(Ask("other", 1)).leases().empty());
  CHECK(Renew(server, "slow", slow, 1) == v1::LeaseUpdate::HELD);
  CHECK(server.Sync(HandIn("slow", Result(slow, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
}

TEST_CASE("A worker that was beaten may have the next straggler's task, where it may have only one") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(0);
  spec.mutable_open_slots()->set_count(8);
  spec.mutable_open_slots()->set_per_worker_max(1);
  server.CreateRound(spec);
  server.Advance(absl::Minutes(2));
  const v1::Lease slow = server.Sync(Ask("slow1", 1)).leases(0);
  REQUIRE(server.Sync(Ask("slow2", 1)).leases_size() == 1);
  std::vector<v1::Lease> fast;
  for (int i = 0; i < 6; ++i) fast.push_back(server.Sync(Ask(fmt::format("f{}", i), 1)).leases(0));
  server.Advance(absl::Seconds(10));
  for (size_t i = 0; i < 6; ++i) server.Sync(HandIn(fmt::format("f{}", i), Result(fast[i], 1)));
  server.Advance(absl::Seconds(10));
  REQUIRE(server.Sync(Ask("idle", 2)).leases_size() == 1);
  REQUIRE(server.Sync(HandIn("slow1", Result(slow, 1))).verdicts(0).verdict() == Verdict::ACCEPTED);
  CHECK(server.Sync(Ask("idle", 2)).leases_size() == 1);
}

TEST_CASE("What is done about stragglers is explained") {
  CoreFederation server;
  v1::RoundSpec spec = StragglerRound(8);
  spec.mutable_straggler()->set_deadline_factor(6);
  const std::string round = server.CreateRound(spec);
  const v1::Lease slow = server.Sync(Ask("slow", 1)).leases(0);
  CHECK_THAT(Explained(server, round), Contains("is known once 3 attempts have succeeded; 0 so far"));
  v1::SyncResponse others = server.Sync(Ask("fast", 6));
  server.Advance(absl::Seconds(10));
  for (int i = 0; i < 3; ++i) server.Sync(HandIn("fast", Result(others.leases(i), 1)));
  CHECK_THAT(Explained(server, round), Contains("No task is leased a second time while others are queued."));
  const v1::Lease last = server.Sync(Ask("fast2", 1)).leases(0);
  CHECK_THAT(Explained(server, round), Contains("once 2 or fewer are left (remaining_share_max 0.25 of 8)"));
  CHECK_THAT(Explained(server, round),
             Contains("How long an attempt may take is known once 6 have succeeded, 0.75 of the goal; 3 so far."));
  for (int i = 3; i < 6; ++i) server.Sync(HandIn("fast", Result(others.leases(i), 1)));
  CHECK_THAT(Explained(server, round), Contains("An attempt is lost that takes longer than 1m"));
  CHECK_THAT(Explained(server, round), Contains("1.5 times the 0.75 quantile of 6 attempts that succeeded, 10"));
  server.Advance(absl::Seconds(10));
  CHECK_THAT(Explained(server, round), Contains("The longest has run for 20s and waits for another worker."));
  const v1::Lease second = server.Sync(Ask("idle", 1)).leases(0);
  server.Sync(HandIn("idle", Result(second, 1)));
  CHECK_THAT(Explained(server, round), Contains("1 contribution was accepted from a second attempt"));
}

TEST_CASE("A straggler policy that makes no sense is refused by the name of its field, and defaults are written out") {
  CoreFederation server;
  const auto refusal = [&](const auto& change) {
    v1::CreateRoundRequest request;
    *request.mutable_spec() = SumRound(1);
    request.set_request_id("bad");
    change(*request.mutable_spec()->mutable_straggler());
    const auto answer = server.Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
    REQUIRE(absl::IsInvalidArgument(answer.status()));
    return std::string(answer.status().message());
  };
  using Policy = v1::StragglerPolicy;
  CHECK_THAT(refusal([](Policy&) {}),
             Contains("spec.straggler asks for nothing; set speculate, deadline_factor, or both"));
  const auto speculating = [&](auto change) {
    return refusal([&](Policy& policy) {
      policy.set_speculate(true);
      change(policy);
    });
  };
  CHECK_THAT(speculating([](Policy& p) { p.set_remaining_share_max(1.5); }), Contains("remaining_share_max is 1.5"));
  CHECK_THAT(speculating([](Policy& p) { p.set_quantile(1); }), Contains("quantile is 1; it must be less than 1"));
  CHECK_THAT(speculating([](Policy& p) { p.set_factor(0.5); }), Contains("straggler.factor is 0.5"));
  CHECK_THAT(speculating([](Policy& p) { p.set_factor(std::nan("")); }), Contains("straggler.factor is nan"));
  CHECK_THAT(speculating([](Policy& p) { p.set_deadline_factor(1001); }),
             Contains("straggler.deadline_factor is 1001"));
  CHECK_THAT(speculating([](Policy& p) { p.set_finished_min(-1); }), Contains("finished_min is negative"));
  CHECK_THAT(speculating([](Policy& p) { *p.mutable_age_min() = ToProto(-absl::Seconds(1)); }),
             Contains("straggler.age_min is negative"));
  const v1::StragglerPolicy policy = server.GetRound(server.CreateRound(StragglerRound(1))).spec().straggler();
  CHECK(policy.remaining_share_max() == 0.25);
  CHECK(policy.quantile() == 0.75);
  CHECK(policy.factor() == 1.5);
  CHECK(policy.finished_min() == 3);
  CHECK(FromProto(policy.age_min()) == absl::Milliseconds(100));
}

}  // namespace
}  // namespace sheaf
