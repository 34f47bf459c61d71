// Inbox: where completions wait until the loop takes its next step. Calls end and runs finish in threads of their own;
// what follows from it happens in the loop's thread, one event after the other.
//
//   inbox->Post([=](absl::Time now) { attempt->Step(now); });      // From any thread; calls `wake`.
//   for (Inbox::Event& event : inbox->TakeAll()) event(now);
//
// Shared between the loop and the callbacks it has under way; once closed it drops what still comes. Thread-safe.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace sheaf {

class Inbox {
 public:
  using Event = std::function<void(absl::Time now)>;

  explicit Inbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void Post(Event event) EXCLUDES(mutex_) {
    // Woken under the lock, so that nobody is woken after Close.
    MutexLock lock(mutex_);
    if (closed_) return;
    events_.push_back(std::move(event));
    if (wake_) wake_();
  }

  std::vector<Event> TakeAll() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return std::exchange(events_, {});
  }

  bool is_empty() EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return events_.empty();
  }

  void Close() EXCLUDES(mutex_) {
    std::vector<Event> dropped = TakeAll();
    MutexLock lock(mutex_);
    closed_ = true;
  }

 private:
  const std::function<void()> wake_;
  Mutex mutex_;
  std::vector<Event> events_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace sheaf
