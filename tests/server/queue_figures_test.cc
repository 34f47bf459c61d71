// What is counted of rounds, tasks, leases and workers, while they change.
#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "proto/time.h"
#include "storage/transitions.h"
#include "tests/server/core_federation.h"

namespace sheaf {
namespace {

using Verdict = v1::ResultVerdict;

constexpr std::pair<TaskState, int64_t TaskCounts::*> kCounts[] = {
    {TaskState::kQueued, &TaskCounts::queued},       {TaskState::kLeased, &TaskCounts::leased},
    {TaskState::kSucceeded, &TaskCounts::succeeded}, {TaskState::kFailed, &TaskCounts::failed},
    {TaskState::kCancelled, &TaskCounts::cancelled}, {TaskState::kBuried, &TaskCounts::buried},
};

// Null if there is nothing of it.
const PopulationFigures* FiguresOf(CoreFederation& server, const std::string& population) {
  const std::vector<std::string> names = server.core().figures().slots.Names();
  const auto name = std::find(names.begin(), names.end(), population);
  if (name == names.end()) return nullptr;
  return &server.core().figures().populations[static_cast<size_t>(name - names.begin())];
}

template <typename Enum, typename Figures>
int64_t Num(const Figures& figures, Enum value) {
  return figures[static_cast<size_t>(value)].value();
}

// The gauges are what a look at everything finds.
void CheckQueue(CoreFederation& server, const std::string& population) {
  server.core().RefreshFigures();
  const PopulationFigures& figures = *FiguresOf(server, population);
  const absl::Time now = server.clock().Now();
  const auto queue = server.core().queries().DescribeQueue(population, now);
  REQUIRE(queue.ok());
  for (const auto& [state, count] : kCounts) {
    INFO(Name(state));
    CHECK(Num(figures.tasks, state) == queue->tasks.*count);
  }
  int64_t num_rounds = 0;
  for (const Gauge& rounds : figures.rounds) num_rounds += rounds.value();
  CHECK(num_rounds == queue->num_live_rounds);
  // The first of those that wait may not be available yet: then none is.
  const int64_t oldest = figures.oldest_available.value();
  if (queue->oldest_available_time != absl::InfiniteFuture()) {
    CHECK(oldest == absl::ToUnixNanos(queue->oldest_available_time));
  } else {
    CHECK(oldest > absl::ToUnixNanos(now));
  }
  // Every lease is still held, or has ended somehow.
  int64_t num_ended = 0;
  for (const Counter& ended : figures.leases_ended) num_ended += ended.value();
  CHECK(figures.leases_granted.value() == Num(figures.tasks, TaskState::kLeased) + num_ended);
}

TEST_CASE("Whatever happens to rounds and tasks, the gauges say what a look at all of them finds") {
  CoreFederation server;
  SeededRandom random(7);
  const std::vector<std::string> populations = {"default", "lab"};
  std::deque<v1::Lease> leases;
  std::vector<std::string> rounds;
  for (const std::string& population : populations) {
    v1::RoundSpec spec = SumRound(3);
    spec.set_population(population);
    rounds.push_back(server.CreateRound(spec));
  }
  const auto sync = [&](v1::SyncRequest request, const std::string& population) {
    request.set_population(population);
    return server.Sync(request);
  };
  std::string of_lease = "default";
  for (int step = 0; step < 600; ++step) {
    INFO("step " << step);
    const std::string& population = populations[random.Below(2)];
    switch (random.Below(9)) {
      case 0: {
        v1::RoundSpec spec = SumRound(static_cast<int>(1 + random.Below(6)));
        spec.set_population(population);
        spec.set_goal(1 + static_cast<int64_t>(random.Below(static_cast<uint64_t>(spec.listed().tasks_size()))));
        spec.mutable_retry()->set_failed_max(2);
        rounds.push_back(server.CreateRound(spec));
        break;
      }
      case 1:
      case 2:
      case 3: {
        if (population != of_lease) leases.clear();
        of_lease = population;
        const v1::SyncResponse granted = sync(Ask("w", 2), population);
        leases.insert(leases.end(), granted.leases().begin(), granted.leases().end());
        break;
      }
      case 4:
      case 5: {
        if (leases.empty()) break;
        v1::SyncRequest request = Ask("w", 0);
        *request.add_results() =
            random.Chance(0.7) ? Result(leases.front(), 1) : Failure(leases.front(), "broken", random.Chance(0.3));
        leases.pop_front();
        sync(request, of_lease);
        break;
      }
      case 6: {
        v1::CancelRoundRequest request;
        request.set_request_id("cancel-" + std::to_string(step));
        request.set_round(rounds[random.Below(rounds.size())]);
        if (random.Chance(0.3))
          server.Call<v1::CancelRoundResponse>("RoundService/CancelRound", request).status().IgnoreError();
        break;
      }
      case 7: {
        if (leases.empty()) break;
        v1::RequeueTaskRequest request;
        request.set_request_id("requeue-" + std::to_string(step));
        request.set_task(leases.back().task());
        server.Call<v1::RequeueTaskResponse>("InspectionService/RequeueTask", request).status().IgnoreError();
        break;
      }
      default:
        server.Advance(absl::Seconds(static_cast<int64_t>(random.Below(20))));
    }
    for (const std::string& each : populations) {
      INFO(each);
      CheckQueue(server, each);
    }
  }
  const PopulationFigures& figures = *FiguresOf(server, "default");
  for (const AttemptOutcome outcome :
       {AttemptOutcome::kSucceeded, AttemptOutcome::kFailed, AttemptOutcome::kLost, AttemptOutcome::kCancelled}) {
    INFO(Name(outcome));
    CHECK(Num(figures.leases_ended, outcome) > 0);
  }
  CHECK(Num(figures.rounds_ended, RoundState::kSucceeded) > 0);
  CHECK(Num(figures.rounds_ended, RoundState::kCancelled) > 0);
  CHECK(Num(figures.verdicts, Verdict::ACCEPTED) > 0);
}

TEST_CASE("A restarted server's gauges say what it has found in its store") {
  CoreFederation server;
  server.CreateRound(SumRound(5));
  REQUIRE(server.Sync(Ask("w", 2)).leases_size() == 2);
  server.CrashAndRestart();
  server.core().RefreshFigures();
  const PopulationFigures& figures = *FiguresOf(server, "default");
  CHECK(Num(figures.tasks, TaskState::kQueued) == 3);
  CHECK(Num(figures.tasks, TaskState::kLeased) == 2);
  CHECK(Num(figures.rounds, RoundState::kCollecting) == 1);
  CHECK(figures.leases_granted.value() == 0);
}

TEST_CASE("A round that ended takes with it what was counted of it") {
  CoreFederation server;
  const std::string round = server.CreateRound(SumRound(1));
  server.core().RefreshFigures();
  const PopulationFigures& figures = *FiguresOf(server, "default");
  CHECK(Num(figures.tasks, TaskState::kQueued) == 1);
  server.Advance(absl::Seconds(5));
  REQUIRE(Contribute(server, "w", 1) == Verdict::ACCEPTED);
  REQUIRE(server.GetRound(round).state() == v1::SUCCEEDED);
  server.core().RefreshFigures();
  for (const Gauge& tasks : figures.tasks) CHECK(tasks.value() == 0);
  for (const Gauge& rounds : figures.rounds) CHECK(rounds.value() == 0);
  CHECK(figures.oldest_available.value() == PopulationFigures::kNever);
  CHECK(figures.spooled_bytes.value() == 0);
  const CoreFigures& all = server.core().figures();
  CHECK(all.accumulator_bytes.value() == 0);
  CHECK(all.task_wait_seconds.Read().sum == Approx(5));
  CHECK(all.round_seconds.Read().sum == Approx(5));
  CHECK(all.seal_seconds.Read().buckets.back().count == 1);
  CHECK(all.fold_seconds.Read().buckets.back().count == 1);
  CHECK(all.contribution_bytes.Read().buckets.back().count == 1);
}

TEST_CASE("Populations beyond those that have figures of their own share one more") {
  CoreFederation server;
  const auto create = [&](const std::string& population) {
    v1::RoundSpec spec = SumRound(2);
    spec.set_population(population);
    server.CreateRound(spec);
  };
  // One of the names is "default", from the start.
  for (size_t i = 0; i < PopulationSlots::kNamedMax; ++i) create("p" + std::to_string(i));
  for (int i = 0; i < 5; ++i) create("late" + std::to_string(i));
  // Of this name there is one line, whoever calls himself so.
  create("other");
  server.core().RefreshFigures();
  const CoreFigures& figures = server.core().figures();
  CHECK(figures.slots.Names().size() == PopulationSlots::kNamedMax);
  CHECK(FiguresOf(server, "late0") == nullptr);
  CHECK(FiguresOf(server, "other") == nullptr);
  CHECK(Num(FiguresOf(server, "p3")->tasks, TaskState::kQueued) == 2);
  CHECK(Num(figures.populations[PopulationSlots::kOthers].tasks, TaskState::kQueued) == 14);
}

TEST_CASE("A worker counts as live from its last call on, and is counted until it is forgotten") {
  CoreFederation server;
  const auto num_live = [&] {
    const int64_t minute = WorkerAges::MinuteOf(server.clock().Now());
    return FiguresOf(server, "default")->workers.NumSince(minute - 2, minute);
  };
  const auto total = [&] { return FiguresOf(server, "default")->workers.total(); };
  for (int i = 0; i < 10; ++i) server.Sync(Ask("w" + std::to_string(i), 1));
  CHECK(num_live() == 10);
  server.Advance(absl::Minutes(3));
  for (int i = 0; i < 4; ++i) server.Sync(Ask("w" + std::to_string(i), 1));
  CHECK(num_live() == 4);
  CHECK(total() == 10);
  for (int i = 0; i < 25; ++i) {
    server.Advance(absl::Minutes(1));
    server.Sync(Ask("w0", 1));
  }
  CHECK(num_live() == 1);
  CHECK(total() == 1);
}

TEST_CASE("A poll is counted while it is parked, and by what became of it") {
  CoreFederation server;
  const auto poll = [&](const std::string& worker) {
    v1::SyncRequest request = Ask(worker, 1);
    *request.mutable_wait() = ToProto(absl::Seconds(30));
    return server.CallLater<v1::SyncResponse>("WorkService/Sync", request);
  };
  const auto first = poll("w1");
  const CoreFigures& figures = server.core().figures();
  CHECK(FiguresOf(server, "default")->parked_polls.value() == 1);
  server.Advance(absl::Seconds(30));
  REQUIRE(first->has_value());
  CHECK(figures.polls_without_leases.value() == 1);
  const auto second = poll("w2");
  server.Advance(absl::Seconds(2));
  server.CreateRound(SumRound(1));
  REQUIRE(second->has_value());
  CHECK(figures.polls_with_leases.value() == 1);
  poll("w3");
  server.AbandonmentOfNewestCall()();
  server.Run();
  CHECK(figures.polls_abandoned.value() == 1);
  CHECK(FiguresOf(server, "default")->parked_polls.value() == 0);
  CHECK(figures.poll_wait_seconds.Read().sum == Approx(32));
}

}  // namespace
}  // namespace sheaf
