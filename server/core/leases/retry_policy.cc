#include "server/core/leases/retry_policy.h"

#include <algorithm>

namespace sheaf {

RetryDecision DecideRetry(const EndedAttempt& attempt, const Limits& limits, Random& random) {
  const auto& [task, outcome, is_permanent, policy, now] = attempt;
  if (is_permanent && outcome == AttemptOutcome::kFailed) return {.to = TaskState::kFailed, .available_time = now};
  // The other limit may have been reached by an attempt that ended while this one ran.
  const int32_t num_lost = task.num_lost + (outcome == AttemptOutcome::kLost ? 1 : 0);
  const int32_t num_failed = task.num_failed + (outcome == AttemptOutcome::kFailed ? 1 : 0);
  if (num_lost >= policy.lost_max() || num_failed >= policy.failed_max()) {
    return {.to = TaskState::kBuried, .available_time = now};
  }
  if (outcome == AttemptOutcome::kFailed) {
    const int doublings = std::min(task.num_failed, 20);
    const absl::Duration ceiling =
        std::min(limits.retry_backoff_max, limits.retry_backoff_base * (int64_t{1} << doublings));
    return {.to = TaskState::kQueued, .available_time = now + random.Between(absl::ZeroDuration(), ceiling)};
  }
  return {.to = TaskState::kQueued, .available_time = now};
}

}  // namespace sheaf
