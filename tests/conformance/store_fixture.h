// StoreFixture: one store, a time that a test turns, and short ways to say the usual things.
//
//   StoreFixture f(kind);
//   f.CreateRound({.num_tasks = 3});
//   TaskRecord task = f.Lease("w1");
#pragma once

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/task_store_suite.h"

namespace sheaf {

class StoreFixture {
 public:
  explicit StoreFixture(const StoreKind& kind) : under_test_(kind.make()) {}

  TaskStore& store() { return under_test_->store(); }
  void Reopen() { under_test_->Reopen(); }

  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  RoundId round{"r-one"};

  // Runs one operation in a batch of its own; commits it whatever it answers.
  template <typename Operation>
  auto Do(Operation operation) {
    REQUIRE(store().BeginBatch().ok());
    auto answer = operation(store());
    REQUIRE(store().CommitBatch().ok());
    return answer;
  }

  struct RoundOptions {
    std::string id = "r-one";
    int num_tasks = 1;
    std::string requirement;
    RoundState state = RoundState::kCollecting;
    std::string population = "default";
    std::string job = "job";
    std::string request_id;
    std::string broadcast;
  };
  TaskStore::CreateRoundParams RoundParams(const RoundOptions& options) {
    TaskStore::CreateRoundParams params;
    params.round = {.id = RoundId(options.id),
                    .population = options.population,
                    .job = options.job,
                    .request_id = options.request_id.empty() ? "request-" + options.id : options.request_id,
                    .spec = "spec of " + options.id,
                    .state = options.state,
                    .create_time = now,
                    .deadline_time = now + absl::Hours(1),
                    .broadcast_digest = options.broadcast};
    for (int i = 0; i < options.num_tasks; ++i) {
      params.tasks.push_back({.payload = fmt::format("payload {}", i),
                              .data_selector = fmt::format("selector {}", i),
                              .requirement = options.requirement});
    }
    return params;
  }
  RoundRecord CreateRound(const RoundOptions& options) {
    auto result = Do([&](TaskStore& s) { return s.CreateRound(RoundParams(options)); });
    REQUIRE(result.ok());
    REQUIRE(result->created);
    return result->round;
  }

  TaskStore::LeaseTasksParams LeaseParams(const std::string& worker, int count = 1, const std::string& of = "r-one") {
    TaskStore::LeaseTasksParams params{.round = RoundId(of),
                                       .worker = WorkerName(worker),
                                       .poll_id = "poll",
                                       .now = now,
                                       .expire_time = now + absl::Seconds(30),
                                       .attempt_deadline_time = now + absl::Minutes(10)};
    for (int i = 0; i < count; ++i) params.tokens.emplace_back(fmt::format("token-{}", ++num_tokens_));
    return params;
  }
  std::vector<TaskRecord> LeaseUpTo(const TaskStore::LeaseTasksParams& params) {
    auto leased = Do([&](TaskStore& s) { return s.LeaseTasks(params); });
    REQUIRE(leased.ok());
    return *leased;
  }
  TaskRecord Lease(const std::string& worker) {
    auto leased = LeaseUpTo(LeaseParams(worker));
    REQUIRE(leased.size() == 1);
    return leased[0];
  }

  absl::StatusOr<ContributionRecord> Contribute(const TaskRecord& task, int64_t segment = 1) {
    return Do([&](TaskStore& s) {
      return s.RecordContribution({.task = task.id,
                                   .token = task.lease_token,
                                   .digest = "digest",
                                   .size_bytes = 100,
                                   .num_clients = 2,
                                   .payload = {.segment = segment, .offset = 8, .length = 100, .crc = 0xfffffff0u},
                                   .timings = "timings",
                                   .progress = "progress",
                                   .now = now});
    });
  }

  absl::StatusOr<TaskRecord> End(const TaskRecord& task, AttemptOutcome outcome, TaskState to,
                                 absl::Duration delay = absl::ZeroDuration()) {
    return Do([&](TaskStore& s) {
      return s.EndAttempt({.task = task.id,
                           .token = task.lease_token,
                           .outcome = outcome,
                           .to = to,
                           .available_time = now + delay,
                           .error = "it broke",
                           .timings = "timings",
                           .now = now});
    });
  }

  absl::StatusOr<RoundRecord> Move(RoundState from, RoundState to) {
    return Do([&](TaskStore& s) {
      return s.MoveRound({.round = round,
                          .from = from,
                          .to = to,
                          .now = now,
                          .error = "why",
                          .aggregate = "the aggregate",
                          .aggregate_digest = "digest of the aggregate"});
    });
  }

  void Saw(const std::string& worker, const std::string& population = "default") {
    REQUIRE(Do([&](TaskStore& s) {
              return s.SawWorker(
                  {.name = WorkerName(worker), .population = population, .description = "a worker", .now = now});
            }).ok());
  }

  RoundRecord Round() {
    auto found = store().GetRound(round);
    REQUIRE(found.ok());
    return *found;
  }
  TaskRecord Task(int index) {
    auto found = store().GetTask({round, index});
    REQUIRE(found.ok());
    return *found;
  }
  std::vector<AttemptRecord> Attempts(int index) {
    auto found = store().ListAttempts({round, index});
    REQUIRE(found.ok());
    return *found;
  }
  WorkerRecord Worker(const std::string& name) {
    const auto workers = store().ListWorkers({.population = "default"});
    REQUIRE(workers.ok());
    for (const WorkerRecord& worker : *workers) {
      if (worker.name == WorkerName(name)) return worker;
    }
    FAIL("there is no worker " << name);
    return {};
  }
  std::string DumpNow() { return Dump(store(), now); }

 private:
  std::unique_ptr<StoreUnderTest> under_test_;
  int num_tokens_ = 0;
};

}  // namespace sheaf

// One promise, checked on each store.
#define STORE_TEST(sentence) STORE_TEST_NAMED(INTERNAL_CATCH_UNIQUE_NAME(StoreTest), sentence)
#define STORE_TEST_NAMED(function, sentence)                            \
  static void function(::sheaf::StoreFixture& f);                       \
  TEST_CASE(sentence, "[conformance]") {                                \
    for (const ::sheaf::StoreKind& kind : ::sheaf::StoresUnderTest()) { \
      DYNAMIC_SECTION("on " << kind.name) {                             \
        ::sheaf::StoreFixture fixture(kind);                            \
        function(fixture);                                              \
      }                                                                 \
    }                                                                   \
  }                                                                     \
  static void function(::sheaf::StoreFixture& f)
