#include "server/core_thread.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <set>

#include "base/random.h"
#include "storage/memory/memory_payload_store.h"
#include "storage/memory/memory_task_store.h"

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
  SlowlyFlushedStore(SharedClock& clock, absl::Duration flush) : clock_(clock), flush_(flush) {}
  absl::Status CommitBatch() override {
    clock_.Advance(flush_);
    ++num_commits_;
    return MemoryTaskStore::CommitBatch();
  }
  int num_commits() const { return num_commits_; }

 private:
  SharedClock& clock_;
  const absl::Duration flush_;
  std::atomic<int> num_commits_ = 0;
};

// A core in its thread, over a disk that takes its time.
class RunningCore {
 public:
  explicit RunningCore(absl::Duration flush) : store_(clock_, flush) {
    REQUIRE(core_.Recover(clock_.Now()).ok());
    thread_.Start(runner_, core_);
  }
  // Ten batches of one event each, which takes so long.
  void Work(absl::Duration each) {
    for (int i = 0; i < 10; ++i) {
      REQUIRE(thread_.RunInBatch([&](absl::Time) { clock_.Advance(each); }).ok());
    }
  }
  // How many batches it takes for the events of a crowd.
  size_t NumBatchesOfACrowd() {
    std::set<int> batches;
    const absl::Status posted = thread_.RunInBatch([&](absl::Time) {
      for (int i = 0; i < kEvents; ++i) {
        thread_.Post([&](absl::Time) { batches.insert(store_.num_commits()); });
      }
    });
    REQUIRE(posted.ok());
    // It comes after them.
    REQUIRE(thread_.RunInBatch([](absl::Time) {}).ok());
    return batches.size();
  }

 private:
  SharedClock clock_;
  SeededRandom random_{1};
  SlowlyFlushedStore store_;
  MemoryPayloadStore payloads_{clock_};
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

}  // namespace
}  // namespace sheaf
