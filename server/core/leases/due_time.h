// DueTime: when leases have to be looked through next: no lease runs out, and no delayed task becomes available,
// before.
//
//   due.NoLaterThan(task.expire_time);               // A task was leased.
//   const bool is_due = due.time() <= read_until;    // Else there is nothing to sweep.
//
// Too early costs one look; too late would leave a task with a worker that is gone. Not thread-safe: the core's.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace sheaf {

class DueTime {
 public:
  absl::Time time() const { return time_; }
  void NoLaterThan(absl::Time time) { time_ = std::min(time_, time); }
  // What is known of it may be wrong: look at the store.
  void AtOnce() { time_ = absl::InfinitePast(); }
  // After a look at the store.
  void Set(absl::Time time) { time_ = time; }

 private:
  absl::Time time_ = absl::InfinitePast();
};

}  // namespace sheaf
