// What becomes of a task whose attempt ended without a contribution. Pure.
//
//   const RetryDecision decision =
//       DecideRetry({.task = task, .outcome = AttemptOutcome::kLost, .policy = policy, .now = now}, limits, random);
#pragma once

#include "absl/time/time.h"
#include "base/random.h"
#include "server/core/limits/limits.h"
#include "sheaf/v1/round.pb.h"
#include "storage/records.h"

namespace sheaf {

struct EndedAttempt {
  // As it was leased.
  const TaskRecord& task;
  // kFailed, kLost or kReleased.
  AttemptOutcome outcome;
  // Its worker says that no retry can mend it. With kFailed.
  bool is_permanent = false;
  const v1::RetryPolicy& policy;
  absl::Time now;
};

struct RetryDecision {
  // kQueued, kFailed or kBuried.
  TaskState to;
  // With kQueued.
  absl::Time available_time;
};

// Failed attempts and lost attempts are counted apart, each against its own limit; at the limit the task is
// BURIED. A failed task waits with full jitter, exponentially (Brooker, "Exponential Backoff And Jitter", AWS 2015); a
// lost or released one goes straight back, because nothing speaks against the task.
RetryDecision DecideRetry(const EndedAttempt& attempt, const Limits& limits, Random& random);

}  // namespace sheaf
