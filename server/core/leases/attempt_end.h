// AttemptEnd: the end of an attempt at a task that brought no contribution: it failed, was given back, or was lost. The
// task is tried again, now or after a backoff, or it has failed or is buried (see retry_policy.h); one that was carried
// over from another round is cancelled.
//
//   RETURN_IF_ERROR(attempts.End(round, task, {.outcome = AttemptOutcome::kReleased, .error = reason, .now = now}));
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_quota.h"
#include "server/core/batches/core_context.h"
#include "server/core/leases/due_time.h"
#include "server/core/leases/speculation.h"
#include "server/core/lifecycle/round_closing.h"
#include "server/core/rounds/live_rounds.h"
#include "sheaf/v1/task.pb.h"

namespace sheaf {

class AttemptEnd {
 public:
  // All outlive this.
  AttemptEnd(CoreContext& context, LiveRounds& rounds, RoundClosing& closing, Speculation& speculation, DueTime& due)
      : context_(context), rounds_(rounds), closing_(closing), speculation_(speculation), due_(due) {}

  struct Ended {
    // kFailed, kLost or kReleased.
    AttemptOutcome outcome;
    // No retry can mend it. With kFailed.
    bool is_permanent = false;
    // Stored, and shown to whoever may look at the round.
    std::string error;
    // As its worker says; empty if it says nothing.
    v1::AttemptTimings timings = {};
    // When the call came that ended it, if one did.
    std::optional<absl::Time> received = {};
    absl::Time now;
  };
  // Ends the attempt that `task` is leased for. If another attempt at the task runs, the task is that one's alone, and
  // is neither tried again nor given up before that ends, too. Errors as TaskStore::EndAttempt.
  absl::Status End(LiveRound& round, const TaskRecord& task, const Ended& ended);

  // An operator takes a task from its worker, or back from the buried ones. As TaskStore::RequeueTask.
  absl::StatusOr<TaskRecord> Requeue(const TaskId& id, absl::Time now);

 private:
  CoreContext& context_;
  LiveRounds& rounds_;
  RoundClosing& closing_;
  Speculation& speculation_;
  DueTime& due_;
  LogQuota ends_;
};

}  // namespace sheaf
