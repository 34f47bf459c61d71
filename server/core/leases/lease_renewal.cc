#include "server/core/leases/lease_renewal.h"

#include <algorithm>
#include <optional>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/leases/straggler_policy.h"
#include "server/core/rounds/round_states.h"
#include "storage/second_lease.h"

namespace sheaf {

absl::Time AttemptDeadlineOfOpened(const LiveRound& round, const TaskRecord& task, absl::Time now) {
  return std::max(now + FromProto(round.spec.attempt_deadline()), task.expire_time);
}

bool LeaseRenewal::WaitsForNews(const v1::HeldLease& held) const {
  const std::optional<TaskId> id = held.announced() ? TaskId::Parse(held.task()) : std::nullopt;
  const LiveRound* round = id ? rounds_.Find(id->round) : nullptr;
  return round != nullptr && AcceptsContributions(round->state);
}

absl::StatusOr<v1::LeaseUpdate> LeaseRenewal::Renew(const v1::HeldLease& held, const WorkerProfile& worker,
                                                    const CallTimes& times) {
  v1::LeaseUpdate update;
  update.set_task(held.task());
  update.set_lease_token(held.lease_token());
  update.set_verdict(v1::LeaseUpdate::LOST);
  const std::optional<TaskId> id = TaskId::Parse(held.task());
  if (!id) return update;
  const LiveRound* round = rounds_.Find(id->round);
  if (round == nullptr || !HandsOutTasks(round->state)) {
    update.set_verdict(v1::LeaseUpdate::CANCELLED);
    return update;
  }
  if (round->spec.population() != worker.population || !worker.caller->OwnsLease(held.lease_token())) return update;
  // Where there are no tokens, the name is all that tells one worker from another.
  const absl::StatusOr<TaskRecord> state = context_.store.GetTaskState(*id);
  if (absl::IsNotFound(state.status())) return update;
  RETURN_IF_ERROR(state.status());
  const LeaseToken token(held.lease_token());
  if (state->state == TaskState::kSucceeded && state->lease_token != token) {
    // Another attempt was accepted: this one is needed no more.
    update.set_verdict(v1::LeaseUpdate::CANCELLED);
    return update;
  }
  const TaskRecord seen = AsHeldUnder(*state, token);
  if (seen.worker != worker.name) return update;
  // What others of the round have taken since may leave this attempt less time than it was given.
  const absl::Duration limit = AttemptLimit(round->spec.straggler(), round->progress.run_times);
  const bool is_news = held.announced() && !WaitsForBroadcast(round->state);
  const absl::StatusOr<TaskRecord> task = context_.store.RenewLease(
      {.task = *id,
       .token = token,
       .progress = held.progress(),
       .expire_time = std::min(times.now + FromProto(round->spec.lease_duration()), RunsSince(*round, seen) + limit),
       .attempt_deadline_time_max = is_news ? AttemptDeadlineOfOpened(*round, seen, times.now) : absl::InfiniteFuture()});
  if (absl::IsFailedPrecondition(task.status()) || absl::IsNotFound(task.status())) return update;
  RETURN_IF_ERROR(task.status());
  if (limit != absl::InfiniteDuration()) due_.NoLaterThan(task->expire_time);
  context_.figures.leases_renewed.Add();
  update.set_verdict(is_news ? v1::LeaseUpdate::OPENED : v1::LeaseUpdate::HELD);
  if (is_news) update.set_broadcast_digest(round->spec.broadcast_digest());
  *update.mutable_remaining() = ToProto(task->expire_time - times.arrival);
  return update;
}

}  // namespace sheaf
