// EventQueue: what other threads have to say, told in the thread that asks for it.
//
//   queue.Post([&](absl::Time now) { worker.Step(now); });   // From any thread.
//   queue.RunFor(clock, absl::Milliseconds(50));             // Waits at most so long for the first event.
//
// Thread-safe; RunFor belongs to one thread.
#pragma once

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace sheaf {

class EventQueue {
 public:
  using Event = std::function<void(absl::Time now)>;

  void Post(Event event) EXCLUDES(mutex_);
  // Runs what is there; if nothing is, waits for it, at most for `wait`.
  void RunFor(const Clock& clock, absl::Duration wait) EXCLUDES(mutex_);

 private:
  Mutex mutex_;
  CondVar posted_;
  std::vector<Event> events_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
