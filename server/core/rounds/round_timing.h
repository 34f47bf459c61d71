// Where a round's time went: sums over its accepted attempts, and the split of its wall time made from them.
//
//   AddAttempt(task, Plausible(result.timings()), contribution, num_clients, now, progress);
//   const v1::RoundPhases phases = SplitPhases(progress, {.created = t0, .accepted = t1, .folded = t2, .ended = t3});
//
// Pure; thread-safe.
#pragma once

#include "absl/time/time.h"
#include "server/stored/round_progress.h"
#include "sheaf/v1/aggregation.pb.h"
#include "sheaf/v1/round.pb.h"
#include "sheaf/v1/task.pb.h"
#include "storage/records.h"

namespace sheaf {

// What a worker says of an attempt's time is kept, shown and added up, so that it is brought to what can be: no time is
// negative or longer than a round, and fields that this server does not know are left out.
v1::AttemptTimings Plausible(const v1::AttemptTimings& timings);

// Adds an accepted attempt to a round's progress: its timings, bytes and metrics. What the worker did not account for
// between the lease and the acceptance is upload.
void AddAttempt(const TaskRecord& task, const v1::AttemptTimings& timings, const v1::Contribution& contribution,
                int64_t num_clients, absl::Time accept_time, RoundProgress& progress);

struct RoundInstants {
  absl::Time created;
  absl::Time accepted;
  absl::Time folded;
  absl::Time ended;
};
// The phases of a round that succeeded; they add up to ended - created.
v1::RoundPhases SplitPhases(const RoundProgress& progress, const RoundInstants& instants);

}  // namespace sheaf
