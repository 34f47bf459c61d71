// TaskDemand: how many calls a second a population's tasks need, of those that were not taken by workers that wait: for
// the tasks that come, as they came lately, and for those that are queued, which should not wait for long.
//
//   TaskDemand demand(now);
//   demand.CountLeased(3);                    // A call took three tasks.
//   demand.Look(num_queued, now);             // What is queued now: once a second is enough.
//   double calls = demand.CallsPerSecond();
//
// Tasks that came are what is queued more than before, and what calls took meanwhile. So tasks that were cancelled, or
// taken by workers that wait, count as if they had not come. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace sheaf {

class TaskDemand {
 public:
  explicit TaskDemand(absl::Time now) : looked_(now) {}

  void CountLeased(int64_t num_tasks);
  // `now` does not go back.
  void Look(int64_t num_queued, absl::Time now);
  // As of the last look.
  double CallsPerSecond() const;

 private:
  absl::Time looked_;
  std::optional<int64_t> num_queued_;
  // Leased since the last look, and by how many calls.
  int64_t num_leased_ = 0;
  int64_t num_served_ = 0;
  // The same, tasks that came, and the time that has passed: what is older counts for less.
  double recent_leased_ = 0;
  double recent_served_ = 0;
  double recent_come_ = 0;
  // Tasks that came and are not among these yet.
  double fresh_come_ = 0;
  double recent_seconds_ = 0;
};

}  // namespace sheaf
