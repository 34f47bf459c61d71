// Mutex, MutexLock, CondVar: std::mutex with clang's thread-safety annotations.
// Not absl::Mutex, because ThreadSanitizer does not understand Debian's build of it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

// Debian's absl still claims two of these names; where both are included, these win.
#undef GUARDED_BY
#undef NO_THREAD_SAFETY_ANALYSIS

#if defined(__clang__)
#define SHEAF_ATTRIBUTE(x) __attribute__((x))
#else
#define SHEAF_ATTRIBUTE(x)
#endif

#define CAPABILITY(x) SHEAF_ATTRIBUTE(capability(x))
#define SCOPED_CAPABILITY SHEAF_ATTRIBUTE(scoped_lockable)
#define GUARDED_BY(x) SHEAF_ATTRIBUTE(guarded_by(x))
#define REQUIRES(...) SHEAF_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) SHEAF_ATTRIBUTE(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) SHEAF_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RELEASE(...) SHEAF_ATTRIBUTE(release_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS SHEAF_ATTRIBUTE(no_thread_safety_analysis)

namespace sheaf {

class CAPABILITY("mutex") Mutex {
 public:
  void Lock() ACQUIRE() { mutex_.lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Call in a loop that re-checks the condition: it may wake for no reason.
  void Wait(Mutex& mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // Also returns after `timeout`. An infinite timeout waits for ever.
  void WaitFor(Mutex& mutex, absl::Duration timeout) REQUIRES(mutex) {
    if (timeout == absl::InfiniteDuration()) return Wait(mutex);
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait_for(lock, absl::ToChronoNanoseconds(timeout));
    lock.release();
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace sheaf
