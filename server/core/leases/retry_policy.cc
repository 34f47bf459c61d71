#include "server/core/leases/retry_policy.h"

#include <algorithm>

namespace sheaf {

RetryDecision DecideRetry(const EndedAttempt& attempt, const Limits& limits, Random& random) {
  const auto& [task, outcome, is_permanent, policy, now] = attempt;
  if (outcome == AttemptOutcome::kLost) {
    const bool is_last = task.num_lost + 1 >= policy.lost_max();
    return {.to = is_last ? TaskState::kBuried : TaskState::kQueued, .available_time = now};
  }
  if (outcome == AttemptOutcome::kFailed) {
    if (is_permanent) return {.to = TaskState::kFailed, .available_time = now};
    if (task.num_failed + 1 >= policy.failed_max()) return {.to = TaskState::kBuried, .available_time = now};
    const int doublings = std::min(task.num_failed, 20);
    const absl::Duration ceiling =
        std::min(limits.retry_backoff_max, limits.retry_backoff_base * (int64_t{1} << doublings));
    return {.to = TaskState::kQueued, .available_time = now + random.Between(absl::ZeroDuration(), ceiling)};
  }
  return {.to = TaskState::kQueued, .available_time = now};
}

}  // namespace sheaf
