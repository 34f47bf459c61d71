#include "server/core/sync/task_demand.h"

#include <algorithm>
#include <cmath>

namespace sheaf {
namespace {

// What came so long ago counts for a third: longer than most rounds, so that one that comes every few minutes asks for
// an even stream; short against a day.
constexpr double kRecentSeconds = 600;
// The tasks of a round come all at once, and count as if they came over the minute after. What is asked for would go up
// with each round and down until the next; and appointments that were made at the top are not taken back.
constexpr double kFreshSeconds = 60;
// Of a population that is known for less than this, a round that was just created says nothing of how often one comes.
constexpr double kRecentSecondsMin = 60;
// Within this time what is queued should be taken.
constexpr double kQueuedSecondsMax = 60;
// Some calls take no task: their worker cannot run what there is. Without these more, the queue would never be empty.
constexpr double kSpare = 1.05;

}  // namespace

void TaskDemand::CountLeased(int64_t num_tasks) {
  if (num_tasks <= 0) return;
  num_leased_ += num_tasks;
  ++num_served_;
}

void TaskDemand::Look(int64_t num_queued, absl::Time now) {
  const double seconds = absl::ToDoubleSeconds(std::max(now - looked_, absl::ZeroDuration()));
  const double kept = std::exp(-seconds / kRecentSeconds);
  // When the first look is taken, nobody knows since when the tasks wait.
  const int64_t num_come = num_queued - num_queued_.value_or(num_queued) + num_leased_;
  const double settled = fresh_come_ * -std::expm1(-seconds / kFreshSeconds);
  fresh_come_ += static_cast<double>(num_come) - settled;
  recent_seconds_ = recent_seconds_ * kept + seconds;
  recent_come_ = recent_come_ * kept + settled;
  recent_leased_ = recent_leased_ * kept + static_cast<double>(num_leased_);
  recent_served_ = recent_served_ * kept + static_cast<double>(num_served_);
  num_leased_ = num_served_ = 0;
  num_queued_ = num_queued;
  looked_ = std::max(looked_, now);
}

double TaskDemand::CallsPerSecond() const {
  const double coming = std::max(recent_come_, 0.0) / std::max(recent_seconds_, kRecentSecondsMin);
  const double queued = static_cast<double>(num_queued_.value_or(0)) / kQueuedSecondsMax;
  // A call takes one task at the least, if it takes any.
  const double tasks_per_call = recent_served_ > 0 ? std::max(recent_leased_ / recent_served_, 1.0) : 1.0;
  return std::max(kSpare * coming, queued) / tasks_per_call;
}

}  // namespace sheaf
