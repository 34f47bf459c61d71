#include "server/core/leases/straggler_policy.h"

#include <algorithm>
#include <cmath>

#include "proto/time.h"

namespace sheaf {

int64_t RemainingMax(const v1::StragglerPolicy& policy, int64_t num_tasks) {
  const double share = std::floor(policy.remaining_share_max() * static_cast<double>(num_tasks));
  return std::max<int64_t>(static_cast<int64_t>(share), 1);
}

absl::Duration StragglerAge(const RoundPulse& pulse) {
  const auto& [policy, tasks, finished] = pulse;
  if (!policy.speculate() || tasks.queued > 0 || tasks.leased > RemainingMax(policy, tasks.total()) ||
      finished.count() < policy.finished_min()) {
    return absl::InfiniteDuration();
  }
  return std::max(finished.Quantile(policy.quantile()) * policy.factor(), FromProto(policy.age_min()));
}

absl::Time StragglersBegunBy(const RoundPulse& pulse, absl::Time now) { return now - StragglerAge(pulse); }

int64_t FinishedForLimit(const v1::RoundSpec& spec) {
  const double share = std::ceil(spec.straggler().quantile() * spec.goal());
  return std::max<int64_t>(static_cast<int64_t>(share), spec.straggler().finished_min());
}

absl::Duration AttemptLimit(const v1::RoundSpec& spec, const RunTimes& finished) {
  const v1::StragglerPolicy& policy = spec.straggler();
  if (policy.deadline_factor() == 0 || finished.count() < FinishedForLimit(spec)) return absl::InfiniteDuration();
  return std::max(finished.Quantile(policy.quantile()) * policy.deadline_factor(), FromProto(policy.age_min()));
}

absl::Duration AttemptLimitOf(const LiveRound& round, const TaskRecord& task) {
  return task.origin ? absl::InfiniteDuration() : AttemptLimit(round.spec, round.progress.run_times);
}

}  // namespace sheaf
