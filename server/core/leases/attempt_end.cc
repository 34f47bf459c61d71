#include "server/core/leases/attempt_end.h"

#include "base/status_macros.h"
#include "base/utf8.h"
#include "server/core/leases/retry_policy.h"
#include "server/core/rounds/attempt_placement.h"
#include "server/stored/attempt_timings.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr size_t kErrorBytesMax = 1024;

}  // namespace

absl::Status AttemptEnd::End(LiveRound& round, const TaskRecord& task, const Ended& ended) {
  const RetryDecision decision = DecideRetry({.task = task,
                                              .outcome = ended.outcome,
                                              .is_permanent = ended.is_permanent,
                                              .policy = round.spec.retry(),
                                              .now = ended.now},
                                             context_.limits, context_.random);
  const AttemptTimings timings = PlaceAttempt(ended.timings, {.available = task.available_time,
                                                              .leased = task.lease_time,
                                                              .received = ended.received.value_or(ended.now),
                                                              .ended = ended.now});
  ASSIGN_OR_RETURN(const TaskRecord left, context_.store.EndAttempt({.task = task.id,
                                                                     .token = task.lease_token,
                                                                     .outcome = ended.outcome,
                                                                     .to = decision.to,
                                                                     .available_time = decision.available_time,
                                                                     .error = CutUtf8(ended.error, kErrorBytesMax),
                                                                     .timings = EncodeTimings(timings),
                                                                     .now = ended.now}));
  speculation_.Note(round);
  const bool is_left_to_another = left.state == TaskState::kLeased;
  if (is_left_to_another) {
    rounds_.queue().OnOneOfTwoEnded(round, ended.outcome);
  } else {
    rounds_.queue().OnLeaseEnded(round, ended.outcome);
  }
  // Not the reason: a worker words it, and `sheaf task describe` shows what of it may be kept.
  ends_.Info(ended.now, "task {}: attempt {} of worker {} {}, the task is {}", task.id.ToString(), task.attempt,
             task.worker, Name(ended.outcome), Name(left.state));
  if (is_left_to_another) {
    // It may still be a straggler's, and a worker that may have only so many of the round's tasks may have another.
    rounds_.work().MayHaveCome(round);
    return absl::OkStatus();
  }
  if (left.state == TaskState::kQueued) {
    rounds_.work().MayHaveCome(round);
    if (decision.available_time > ended.now) {
      rounds_.work().WillCome(round, decision.available_time);
      due_.NoLaterThan(decision.available_time);
    }
  } else {
    // A worker that may have only so many of the round's tasks may have another.
    if (round.spec.open_slots().per_worker_max() > 0) rounds_.work().MayHaveCome(round);
    closing_.CheckExhausted(round, ended.now);
  }
  return absl::OkStatus();
}

absl::StatusOr<TaskRecord> AttemptEnd::Requeue(const TaskId& id, absl::Time now) {
  const absl::StatusOr<TaskRecord> before = context_.store.GetTaskState(id);
  ASSIGN_OR_RETURN(TaskRecord task, context_.store.RequeueTask({.task = id, .now = now}));
  if (LiveRound* round = rounds_.Find(id.round); round != nullptr) {
    if (before.ok() && before->second_lease) rounds_.queue().OnOneOfTwoEnded(*round, AttemptOutcome::kCancelled);
    speculation_.Note(*round);
    rounds_.work().MayHaveCome(*round);
    rounds_.queue().NoteChange(*round);
  }
  return task;
}

}  // namespace sheaf
