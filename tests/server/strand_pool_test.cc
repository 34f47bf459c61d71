#include "server/threads/strand_pool.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace sheaf {
namespace {

// Opens once.
class Gate {
 public:
  void Open() {
    MutexLock lock(mutex_);
    is_open_ = true;
    opened_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!is_open_) opened_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar opened_;
  bool is_open_ GUARDED_BY(mutex_) = false;
};

TEST_CASE("Jobs of a strand run in order, one at a time, and those of another strand beside them") {
  constexpr int kStrands = 8;
  constexpr int kJobs = 500;
  const SystemClock clock;
  StrandPool pool(4);
  struct Strand {
    std::atomic<int> num_running = 0;
    std::vector<int> order;
  };
  std::vector<std::unique_ptr<Strand>> strands;
  std::atomic<bool> was_alone = true;
  for (int s = 0; s < kStrands; ++s) strands.push_back(std::make_unique<Strand>());
  for (int i = 0; i < kJobs; ++i) {
    for (int s = 0; s < kStrands; ++s) {
      pool.Run("strand " + std::to_string(s), [&was_alone, &strand = *strands[static_cast<size_t>(s)], i] {
        if (++strand.num_running != 1) was_alone = false;
        strand.order.push_back(i);
        --strand.num_running;
      });
    }
  }
  REQUIRE(pool.WaitUntilIdle(clock, absl::Seconds(30)));
  CHECK(was_alone);
  for (const auto& strand : strands) {
    REQUIRE(strand->order.size() == kJobs);
    for (int i = 0; i < kJobs; ++i) REQUIRE(strand->order[static_cast<size_t>(i)] == i);
  }
  // One that waits keeps no other.
  Gate gate;
  pool.Run("slow", [&] { gate.Wait(); });
  pool.Run("quick", [&] { gate.Open(); });
  CHECK(pool.WaitUntilIdle(clock, absl::Seconds(30)));
}

TEST_CASE("A pool that is stopped waits for what it is doing, which hears of it, and drops the rest") {
  StrandPool pool(1);
  Gate begun;
  std::atomic<bool> heard = false;
  std::atomic<bool> was_run = false;
  pool.Run("a", [&] {
    begun.Open();
    while (!pool.is_stopping()) {
    }
    heard = true;
  });
  pool.Run("a", [&] { was_run = true; });
  begun.Wait();
  CHECK(!pool.WaitUntilIdle(SystemClock(), absl::Milliseconds(1)));
  pool.Stop();
  CHECK(heard);
  pool.Run("b", [&] { was_run = true; });
  CHECK(!was_run);
}

}  // namespace
}  // namespace sheaf
