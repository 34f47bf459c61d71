// ExecutableUse: how much of an executable is in use: tasks under way, processes that stay and wait for the next, and
// whether it had better be left alone for a while.
//
//   ExecutableUse use({.tasks_max = 4, .ahead_max = 1}, clock);
//   if (!use.Begin({.is_ahead = false})) return absl::UnavailableError("all processes are busy");
//   std::unique_ptr<Process> process = use.TakeIdle();   // Null: start one.
//   use.GiveIdle(std::move(process));
//   use.End({.is_ahead = false});
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

  struct Most {
    // Tasks at a time.
    int tasks_max = 1;
    // Of these, those that only prepare.
    int ahead_max = 0;
  };
  ExecutableUse(const Most& most, const Clock& clock) : most_(most), clock_(clock) {}

  // Whether Begin would say yes.
  bool is_free() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return IsFree();
  }
  // Until it is, if nothing else keeps it; infinite while all processes are busy.
  absl::Duration pause_left() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (num_tasks_ >= most_.tasks_max) return absl::InfiniteDuration();
    return std::max(free_time_ - clock_.Now(), absl::ZeroDuration());
  }
  struct Task {
    // It prepares, and does not run yet.
    bool is_ahead = false;
    bool has_declined = false;
  };
  // A task begins, if it may.
  bool Begin(const Task& task) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (!IsFree() || (task.is_ahead && num_ahead_ >= most_.ahead_max)) return false;
    ++num_tasks_;
    if (task.is_ahead) ++num_ahead_;
    return true;
  }
  // One that was ahead runs.
  void Run() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    --num_ahead_;
  }
  void End(const Task& task) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    --num_tasks_;
    if (task.is_ahead) --num_ahead_;
    pause_ = task.has_declined ? std::clamp(2 * pause_, kDeclinedPauseMin, kDeclinedPauseMax) : absl::ZeroDuration();
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
  bool IsFree() const REQUIRES(mutex_) { return num_tasks_ < most_.tasks_max && clock_.Now() >= free_time_; }

  const Most most_;
  const Clock& clock_;
  mutable Mutex mutex_;
  int num_tasks_ GUARDED_BY(mutex_) = 0;
  int num_ahead_ GUARDED_BY(mutex_) = 0;
  absl::Duration pause_ GUARDED_BY(mutex_);
  absl::Time free_time_ GUARDED_BY(mutex_) = absl::InfinitePast();
  std::vector<std::unique_ptr<Process>> idle_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
