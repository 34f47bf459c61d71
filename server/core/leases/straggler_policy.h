// When an attempt is a straggler: one that runs for much longer than those of its round that succeeded. Pure.
//
//   const RoundPulse pulse{.policy = round.spec.straggler(), .tasks = counts, .finished = round.progress.run_times};
//   const bool is_straggler = task.lease_time <= StragglersBegunBy(pulse, now);
//
// The conditions are those of Spark's speculation (spark.speculation.quantile, .multiplier, .minTaskRuntime), and as in
// MapReduce's backup tasks (Dean and Ghemawat, OSDI 2004) they hold near the end of a round only. LATE's (Zaharia et
// al., OSDI 2008) estimate from progress is not used: what a worker reports as progress is no part of its work.
#pragma once

#include "absl/time/time.h"
#include "server/core/rounds/live_round.h"
#include "server/stored/run_times.h"
#include "sheaf/v1/round.pb.h"
#include "storage/records.h"

namespace sheaf {

struct RoundPulse {
  // As prepared: nothing is left to a default.
  const v1::StragglerPolicy& policy;
  // Of the round, as of now.
  const TaskCounts& tasks;
  // Of its attempts that succeeded.
  const RunTimes& finished;
};

// So many of the round's tasks may still run when stragglers are offered again: at least one.
int64_t RemainingMax(const v1::StragglerPolicy& policy, int64_t num_tasks);

// From this age on an attempt that runs is a straggler. Infinite while none is: tasks are queued, too many run, or too
// few attempts have succeeded. O(buckets of RunTimes), some 260 at the most.
absl::Duration StragglerAge(const RoundPulse& pulse);
// Attempts that began by then are stragglers at `now`. Infinite past: none.
absl::Time StragglersBegunBy(const RoundPulse& pulse, absl::Time now);

// How long an attempt may take by StragglerPolicy::deadline_factor. Infinite without one, and until FinishedForLimit
// attempts have succeeded: those that are quick are the first to, and what they took says nothing of the others. As
// costly.
absl::Duration AttemptLimit(const v1::RoundSpec& spec, const RunTimes& finished);
// The quantile's part of the goal; finished_min at least.
int64_t FinishedForLimit(const v1::RoundSpec& spec);
// The same of a task's attempt. Infinite for one that was carried over: it is measured by another round's.
absl::Duration AttemptLimitOf(const LiveRound& round, const TaskRecord& task);

}  // namespace sheaf
