// StrandPool: the Background of a running server: some threads, and strands of jobs that take turns on them.
//
//   StrandPool folds(4);
//   folds.Run("r-2k5m", job);
//   folds.WaitUntilIdle(clock, absl::Seconds(10));
//   folds.Stop();
//
// A strand that has run one job goes behind those that are ready, so that none keeps the others waiting. Thread-safe.
#pragma once

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "server/core/batches/background.h"

namespace sheaf {

class StrandPool final : public Background {
 public:
  explicit StrandPool(int num_threads);
  // Stops.
  ~StrandPool() override;

  void Run(const std::string& strand, Job job) override EXCLUDES(mutex_);
  bool is_stopping() const override { return is_stopping_.load(std::memory_order_relaxed); }

  // True if there is nothing left to do before `timeout` is over.
  bool WaitUntilIdle(const Clock& clock, absl::Duration timeout) EXCLUDES(mutex_);
  // Waits for the jobs that are running, which hear of it (is_stopping); the others are dropped, as are all to come.
  // Stopping twice is fine.
  void Stop() EXCLUDES(mutex_);

 private:
  void Work() EXCLUDES(mutex_);

  std::atomic<bool> is_stopping_ = false;
  Mutex mutex_;
  CondVar work_;
  CondVar idle_;
  // Jobs that wait, of each strand that has some or runs one.
  std::unordered_map<std::string, std::deque<Job>> strands_ GUARDED_BY(mutex_);
  // Strands that have jobs and run none.
  std::deque<std::string> ready_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace sheaf
