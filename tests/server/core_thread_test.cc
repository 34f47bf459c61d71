#include "server/threads/core_thread.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu_time.h"
#include "base/random.h"
#include "proto/time.h"
#include "server/threads/work_meter.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"
#include "tests/server/core_federation.h"
#include "tests/slow_batches.h"

namespace sheaf {
namespace {

constexpr int kEvents = 256;

// Turned by what the core's thread does, read by others.
class SharedClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::FromUnixSeconds(1'000'000'000) + absl::Nanoseconds(nanos_.load()); }
  void Advance(absl::Duration by) { nanos_ += absl::ToInt64Nanoseconds(by); }

 private:
  std::atomic<int64_t> nanos_ = 0;
};

class SlowlyFlushedStore final : public MemoryTaskStore {
 public:
  SlowlyFlushedStore(SharedClock& clock, absl::Duration flush) : clock_(clock), flush_(flush), next_flush_(flush) {}
  // For events: how long the commit of their batch takes.
  void set_next_flush(absl::Duration flush) { next_flush_ = flush; }
  absl::Status CommitBatch() override {
    clock_.Advance(std::exchange(next_flush_, flush_));
    ++num_commits_;
    return MemoryTaskStore::CommitBatch();
  }
  int num_commits() const { return num_commits_; }

 private:
  SharedClock& clock_;
  const absl::Duration flush_;
  absl::Duration next_flush_;
  std::atomic<int> num_commits_ = 0;
};

// A core in its thread, over a disk that takes its time.
class RunningCore {
 public:
  explicit RunningCore(absl::Duration flush) : store_(clock_, flush) {
    REQUIRE(core_.Recover(clock_.Now()).ok());
    thread_.Start(runner_, core_);
  }
  // What it still does, it does to the core, which goes first.
  ~RunningCore() { thread_.Stop(); }
  // Ten batches of one event each, which takes so long.
  void Work(absl::Duration each) {
    for (int i = 0; i < 10; ++i) {
      REQUIRE(thread_.RunInBatch([&](absl::Time) { clock_.Advance(each); }).ok());
    }
  }
  // Returns when `event` and all that it posts have run. Catch is not thread-safe: no more may be asserted here before.
  void RunWithAllPosted(const Executor::Event& event) {
    const absl::Status first = thread_.RunInBatch(event);
    const absl::Status last = thread_.RunInBatch([](absl::Time) {});
    REQUIRE(first.ok());
    REQUIRE(last.ok());
  }
  void Stall(absl::Duration duration) { clock_.Advance(duration); }
  SlowlyFlushedStore& store() { return store_; }
  CoreThread& thread() { return thread_; }
  Core& core() { return core_; }

  // How many batches it takes for the events of a crowd.
  size_t NumBatchesOfACrowd() {
    std::set<int> batches;
    RunWithAllPosted([&](absl::Time) {
      for (int i = 0; i < kEvents; ++i) {
        thread_.Post([&](absl::Time) { batches.insert(store_.num_commits()); });
      }
    });
    return batches.size();
  }

 private:
  SharedClock clock_;
  SeededRandom random_{1};
  SlowlyFlushedStore store_;
  MemoryPayloadStore payloads_;
  CoreThread thread_{clock_, [](const absl::Status&) {}};
  Core core_{store_, payloads_, thread_, random_, {}};
  BatchRunner runner_{store_, payloads_, core_};
};

TEST_CASE("A slow disk makes no batch smaller: the fewer flushes the better") {
  RunningCore core(absl::Seconds(1));
  core.Work(absl::ZeroDuration());
  CHECK(core.NumBatchesOfACrowd() == 1);
}

TEST_CASE("Work that takes long makes batches small, so that nobody waits for many others, until it is quick again") {
  RunningCore core(absl::ZeroDuration());
  core.Work(absl::Seconds(1));
  CHECK(core.NumBatchesOfACrowd() > 1);
  core.Work(absl::ZeroDuration());
  CHECK(core.NumBatchesOfACrowd() == 1);
}

TEST_CASE("A batch that has worked for long leaves the rest of its events to the next ones, in their order") {
  constexpr int kSlowEvents = 200;
  RunningCore core(absl::ZeroDuration());
  core.Work(absl::ZeroDuration());
  std::vector<int> order;
  absl::Duration longest;
  absl::Time batch;
  core.RunWithAllPosted([&](absl::Time) {
    for (int i = 0; i < kSlowEvents; ++i) {
      core.thread().Post([&, i](absl::Time now) {
        core.Stall(absl::Milliseconds(5));
        order.push_back(i);
        if (now != batch) longest = absl::ZeroDuration();
        batch = now;
        longest += absl::Milliseconds(5);
        CHECK(longest <= absl::Milliseconds(20));
      });
    }
  });
  CHECK(order.size() == kSlowEvents);
  CHECK(std::is_sorted(order.begin(), order.end()));
}

TEST_CASE("Who has one call waits for two short batches at most, however many another one has sent") {
  constexpr int kSlowEvents = 200;
  // How long a flush takes, and how many events of a millisecond a batch has in that time.
  const auto [flush, num_events] = GENERATE(
      table<absl::Duration, int>({{absl::ZeroDuration(), 1}, {absl::Milliseconds(3), 3}, {absl::Milliseconds(20), 5}}));
  CAPTURE(num_events);
  RunningCore core(flush);
  for (int i = 0; i < 5; ++i) core.Work(absl::ZeroDuration());
  const int num_commits_before = core.store().num_commits();
  std::vector<int> before;
  core.RunWithAllPosted([&](absl::Time) {
    auto num_run = std::make_shared<int>(0);
    for (int i = 0; i < kSlowEvents; ++i) {
      core.thread().PostCall("crowd", [&, num_run](absl::Time) {
        core.Stall(absl::Milliseconds(1));
        ++*num_run;
        // Somebody who comes once a while.
        if (*num_run % 50 != 0) return;
        core.thread().PostCall("one", [&, num_run, at = *num_run](absl::Time) { before.push_back(*num_run - at); });
      });
    }
  });
  core.RunWithAllPosted([](absl::Time) {});
  core.thread().Stop();
  REQUIRE(before.size() == 4);
  // The first comes while the crowd is alone, with a batch of 20 ms; from then on a batch works for as long as a flush
  // takes, within bounds. What it found the disk to take is an average.
  CHECK(before[0] <= 20);
  for (const int count : {before[1], before[2], before[3]}) CHECK(count <= num_events + 1);
  // And no more often than that is flushed.
  CHECK(core.store().num_commits() - num_commits_before <= kSlowEvents * 5 / 4 / num_events + 10);
}

TEST_CASE("What the server itself posts and calls alternate: neither waits for all of the other") {
  RunningCore core(absl::ZeroDuration());
  std::vector<std::string> order;
  core.RunWithAllPosted([&](absl::Time) {
    for (int i = 0; i < 50; ++i) {
      core.thread().PostCall("caller", [&](absl::Time) { order.push_back("call"); });
      core.thread().Post([&](absl::Time) { order.push_back("own"); });
    }
  });
  core.thread().Stop();
  REQUIRE(order.size() == 100);
  for (size_t i = 1; i < order.size(); ++i) CHECK(order[i] != order[i - 1]);
}

TEST_CASE("What a batch costs is told by what was done in it, the dearest first") {
  WorkMeter meter;
  meter.Begin();
  meter.Note("nothing");
  for (int i = 0; i < 2; ++i) {
    meter.Note("spinning");
    const absl::Duration begin = ThreadCpuTime();
    while (ThreadCpuTime() - begin < absl::Milliseconds(10)) {
    }
    meter.Note("nothing");
  }
  CHECK(meter.End() >= absl::Milliseconds(20));
  CHECK(meter.Describe().rfind("spinning 2", 0) == 0);
  CHECK(meter.Describe().find("(2), ") != std::string::npos);
}

#ifdef SHEAF_JUDGE_BATCHES
TEST_CASE("A batch that took too long fails a test, and one that was slow to get its memory does not") {
  const auto judged = [](const std::function<void()>& work) {
    WorkMeter meter;
    meter.Begin();
    work();
    meter.End();
    const std::string warning = meter.Warning(absl::Milliseconds(50));
    INFO(warning);
    return SlowBatchesIn("2026-01-01T00:00:00.000 sheafd warning " + warning + "\n").size();
  };
  CHECK(judged([] {
          const absl::Duration begin = ThreadCpuTime();
          while (ThreadCpuTime() - begin < absl::Milliseconds(60)) {
          }
        }) == 1);
  CHECK(judged([] {}) == 0);
  const std::string slow =
      "a batch took 100 ms of the core's thread, more than 50: the batch 100 ms (1); page faults: ";
  CHECK(SlowBatchesIn(slow + "0").size() == 1);
  CHECK(SlowBatchesIn(slow + "4000", [] { return 0.012; }).size() == 1);
  CHECK(SlowBatchesIn(slow + "5000", [] { return 0.012; }).empty());
}
#endif

// As many leases of one round, each of another worker.
std::vector<v1::Lease> LeaseAll(RunningCore& core, int num_workers) {
  std::vector<v1::Lease> leases(static_cast<size_t>(num_workers));
  const absl::Status leased = core.thread().RunInBatch([&](absl::Time now) {
    v1::CreateRoundRequest create;
    create.set_request_id("one");
    *create.mutable_spec() = SumRound(num_workers);
    REQUIRE(core.core().new_rounds().Create(create, now).ok());
    for (int i = 0; i < num_workers; ++i) {
      core.core().sync().Answer(Ask("w" + std::to_string(i), 1), CallId(), Identity::Anybody(), now,
                                [&leases, i](absl::StatusOr<v1::SyncResponse> answer) {
                                  REQUIRE(answer.ok());
                                  leases[static_cast<size_t>(i)] = answer->leases(0);
                                });
    }
  });
  REQUIRE(leased.ok());
  return leases;
}

TEST_CASE("Leases whose renewals wait for a core that stood still are not lost, and those of silent workers are") {
  // More than one batch takes, and after a slow batch the next one takes few.
  constexpr int kWorkers = 240;
  constexpr int kSilent = 10;
  RunningCore core(absl::ZeroDuration());
  const std::vector<v1::Lease> leases = LeaseAll(core, kWorkers + kSilent);
  int num_held = 0;
  const auto renew_all = [&](int64_t progress) {
    for (int i = 0; i < kWorkers; ++i) {
      core.thread().Post([&, i, progress](absl::Time now) {
        v1::SyncRequest renewal = Ask("w" + std::to_string(i), 0);
        *renewal.add_held() = Held(leases[static_cast<size_t>(i)], progress);
        core.core().sync().Answer(renewal, CallId(), Identity::Anybody(), now,
                                  [&](absl::StatusOr<v1::SyncResponse> answer) {
                                    REQUIRE(answer.ok());
                                    if (answer->held(0).verdict() == v1::LeaseUpdate::HELD) ++num_held;
                                  });
      });
    }
  };
  core.RunWithAllPosted([&](absl::Time) {
    core.Stall(absl::Seconds(20));
    renew_all(1);
    core.Stall(absl::Seconds(20));
  });
  std::vector<TaskRecord> lost;
  REQUIRE(core.thread()
              .RunInBatch([&](absl::Time) {
                lost = core.core()
                           .context()
                           .store.ListTasks({.states = {TaskState::kQueued}, .limit = kWorkers + kSilent})
                           .value();
              })
              .ok());
  CHECK(num_held == kWorkers);
  CHECK(lost.empty());
  // They go on saying nothing, although they have the time to.
  core.Stall(absl::Seconds(20));
  renew_all(2);
  REQUIRE(core.thread().RunInBatch([](absl::Time) {}).ok());
  core.Stall(absl::Seconds(25));
  REQUIRE(core.thread().RunInBatch([](absl::Time) {}).ok());
  REQUIRE(core.thread()
              .RunInBatch([&](absl::Time) {
                lost = core.core()
                           .context()
                           .store.ListTasks({.states = {TaskState::kQueued}, .limit = kWorkers + kSilent})
                           .value();
              })
              .ok());
  CHECK(lost.size() == kSilent);
}

TEST_CASE("Leases whose renewals wait in a queue for longer than leases last are held") {
  constexpr int kWorkers = 45;
  RunningCore core(absl::ZeroDuration());
  const std::vector<v1::Lease> leases = LeaseAll(core, kWorkers);
  int num_held = 0;
  core.RunWithAllPosted([&](absl::Time) {
    for (int i = 0; i < kWorkers; ++i) {
      core.thread().Post([&, i](absl::Time now) {
        // Each has a batch of its own.
        core.Stall(absl::Seconds(1));
        v1::SyncRequest renewal = Ask("w" + std::to_string(i), 0);
        *renewal.add_held() = Held(leases[static_cast<size_t>(i)], 1);
        core.core().sync().Answer(renewal, CallId(), Identity::Anybody(), now,
                                  [&](absl::StatusOr<v1::SyncResponse> answer) {
                                    REQUIRE(answer.ok());
                                    if (answer->held(0).verdict() == v1::LeaseUpdate::HELD) ++num_held;
                                  });
      });
    }
  });
  CHECK(num_held == kWorkers);
}

TEST_CASE("A lease that was renewed by a commit that hung for longer than leases last can be renewed again") {
  RunningCore core(absl::ZeroDuration());
  const std::vector<v1::Lease> leases = LeaseAll(core, 2);
  int64_t progress = 0;
  const auto renew = [&](absl::Duration flush) {
    std::optional<v1::LeaseUpdate::Verdict> verdict;
    const absl::Status renewed = core.thread().RunInBatch([&](absl::Time now) {
      core.store().set_next_flush(flush);
      v1::SyncRequest renewal = Ask("w0", 0);
      *renewal.add_held() = Held(leases[0], ++progress);
      core.core().sync().Answer(renewal, CallId(), Identity::Anybody(), now,
                                [&](absl::StatusOr<v1::SyncResponse> answer) {
                                  REQUIRE(answer.ok());
                                  verdict = answer->held(0).verdict();
                                });
    });
    REQUIRE(renewed.ok());
    return v1::LeaseUpdate::Verdict_Name(verdict.value());
  };
  CHECK(renew(absl::Seconds(50)) == "HELD");
  for (int i = 0; i < 3; ++i) {
    REQUIRE(core.thread().RunInBatch([](absl::Time) {}).ok());
    core.Stall(absl::Seconds(3));
  }
  CHECK(renew(absl::ZeroDuration()) == "HELD");
  core.Stall(absl::Seconds(29));
  CHECK(renew(absl::ZeroDuration()) == "HELD");
  core.Stall(absl::Seconds(29));
  REQUIRE(core.thread().RunInBatch([](absl::Time) {}).ok());
  CHECK(renew(absl::ZeroDuration()) == "HELD");
  // The other has been silent all the time.
  REQUIRE(core.thread()
              .RunInBatch([&](absl::Time) {
                CHECK(core.core().context().store.ListTasks({.states = {TaskState::kQueued}, .limit = 2})->size() == 1);
              })
              .ok());
}

TEST_CASE("A deadline that passes while calls wait finds the results that they brought") {
  RunningCore core(absl::ZeroDuration());
  constexpr int kWorkers = 200;
  const std::vector<v1::Lease> leases = LeaseAll(core, kWorkers);
  int num_accepted = 0;
  core.RunWithAllPosted([&](absl::Time) {
    for (int i = 0; i < kWorkers; ++i) {
      core.thread().Post([&, i](absl::Time now) {
        v1::SyncRequest request = Ask("w" + std::to_string(i), 0);
        *request.add_results() = Result(leases[static_cast<size_t>(i)], 1);
        core.core().sync().Answer(request, CallId(), Identity::Anybody(), now,
                                  [&](absl::StatusOr<v1::SyncResponse> answer) {
                                    REQUIRE(answer.ok());
                                    if (answer->verdicts(0).verdict() == v1::ResultVerdict::ACCEPTED) ++num_accepted;
                                  });
      });
    }
    // Beyond the round's deadline.
    core.Stall(absl::Hours(2));
  });
  CHECK(num_accepted == kWorkers);
}

}  // namespace
}  // namespace sheaf
