// ExecutableUse: how much of an executable is in use: tasks under way, processes that stay and wait for the next, and
// whether it had better be left alone for a while.
//
//   ExecutableUse use(processes_max, clock);
//   if (!use.Begin()) return absl::UnavailableError("all processes are busy");
//   std::unique_ptr<Process> process = use.TakeIdle();   // Null: start one.
//   use.GiveIdle(std::move(process));
//   use.End(/*has_declined=*/false);
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "worker/processes/process.h"

namespace sheaf {

class ExecutableUse {
 public:
  // After a task was declined, the next is taken after this long, and twice as long after each further one.
  static constexpr absl::Duration kDeclinedPauseMin = absl::Milliseconds(100);
  static constexpr absl::Duration kDeclinedPauseMax = absl::Seconds(30);

  ExecutableUse(int tasks_max, const Clock& clock) : tasks_max_(tasks_max), clock_(clock) {}

  // Whether Begin would say yes.
  bool is_free() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return IsFree();
  }
  // Until it is, if nothing else keeps it; infinite while all processes are busy.
  absl::Duration pause_left() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (num_tasks_ >= tasks_max_) return absl::InfiniteDuration();
    return std::max(free_time_ - clock_.Now(), absl::ZeroDuration());
  }
  // A task begins, if it may.
  bool Begin() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!IsFree()) return false;
    ++num_tasks_;
    return true;
  }
  void End(bool has_declined) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    --num_tasks_;
    pause_ = has_declined ? std::clamp(2 * pause_, kDeclinedPauseMin, kDeclinedPauseMax) : absl::ZeroDuration();
    free_time_ = clock_.Now() + pause_;
  }

  // One that waits for a task; null if there is none.
  std::unique_ptr<Process> TakeIdle() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (idle_.empty()) return nullptr;
    std::unique_ptr<Process> process = std::move(idle_.back());
    idle_.pop_back();
    return process;
  }
  void GiveIdle(std::unique_ptr<Process> process) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    idle_.push_back(std::move(process));
  }

 private:
  bool IsFree() const REQUIRES(mutex_) { return num_tasks_ < tasks_max_ && clock_.Now() >= free_time_; }

  const int tasks_max_;
  const Clock& clock_;
  mutable Mutex mutex_;
  int num_tasks_ GUARDED_BY(mutex_) = 0;
  absl::Duration pause_ GUARDED_BY(mutex_);
  absl::Time free_time_ GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<std::unique_ptr<Process>> idle_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
