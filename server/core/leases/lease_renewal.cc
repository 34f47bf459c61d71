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

std::optional<TaskId> LeaseRenewal::LivePlaceOf(const v1::HeldLease& held) const {
  std::optional<TaskId> id = TaskId::Parse(held.task());
  if (!id) return std::nullopt;
  // No look into the store's tables: many leases end with a round. The round by whose name it goes may be live, too:
  // after a crash an EPHEMERAL one may collect again whose tasks were carried over.
  id = context_.store.PlaceOf(*id).value_or(*id);
  const LiveRound* round = rounds_.Find(id->round);
  return round != nullptr && HandsOutTasks(round->state) ? id : std::nullopt;
}

absl::StatusOr<std::optional<std::string>> LeaseRenewal::BroadcastOf(const LiveRound& round,
                                                                     const TaskRecord& task) const {
  if (!task.origin) return round.spec.broadcast_digest();
  // It was prepared for a round that has opened, and ended, before its worker heard of it.
  const absl::StatusOr<RoundRecord> origin = context_.store.GetRound(task.origin->round);
  if (absl::IsNotFound(origin.status())) return std::nullopt;
  RETURN_IF_ERROR(origin.status());
  return origin->broadcast_digest;
}

bool LeaseRenewal::WaitsForNews(const v1::HeldLease& held) const {
  const std::optional<TaskId> id = held.announced() ? LivePlaceOf(held) : std::nullopt;
  if (!id) return false;
  return AcceptsContributions(rounds_.Find(id->round)->state) || id->ToString() != held.task();
}

absl::StatusOr<v1::LeaseUpdate> LeaseRenewal::Renew(const v1::HeldLease& held, const WorkerProfile& worker,
                                                    const CallTimes& times) {
  v1::LeaseUpdate update;
  update.set_task(held.task());
  update.set_lease_token(held.lease_token());
  update.set_verdict(v1::LeaseUpdate::LOST);
  const std::optional<TaskId> id = LivePlaceOf(held);
  if (!id) {
    if (TaskId::Parse(held.task())) update.set_verdict(v1::LeaseUpdate::CANCELLED);
    return update;
  }
  const LiveRound* round = rounds_.Find(id->round);
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
  const absl::Duration limit = AttemptLimitOf(*round, seen);
  const bool is_news = held.announced() && (seen.origin || !WaitsForBroadcast(round->state));
  std::optional<std::string> broadcast;
  if (is_news) {
    ASSIGN_OR_RETURN(broadcast, BroadcastOf(*round, seen));
    if (!broadcast) return update;
  }
  // What was carried over was promised by another round's lease_duration, and that stays promised.
  const absl::Time renewed_until =
      std::min(times.now + FromProto(round->spec.lease_duration()), RunsSince(*round, seen) + limit);
  const absl::StatusOr<TaskRecord> task =
      context_.store.RenewLease({.task = *id,
                                 .token = token,
                                 .progress = held.progress(),
                                 .expire_time = seen.origin ? std::max(renewed_until, seen.expire_time) : renewed_until,
                                 .attempt_deadline_time_max = is_news ? AttemptDeadlineOfOpened(*round, seen, times.now)
                                                                      : absl::InfiniteFuture()});
  if (absl::IsFailedPrecondition(task.status()) || absl::IsNotFound(task.status())) return update;
  RETURN_IF_ERROR(task.status());
  if (limit != absl::InfiniteDuration()) due_.NoLaterThan(task->expire_time);
  // It is too slow already: it is taken back in this batch.
  if (task->expire_time <= times.now) return update;
  context_.figures.leases_renewed.Add();
  update.set_verdict(is_news ? v1::LeaseUpdate::OPENED : v1::LeaseUpdate::HELD);
  if (is_news) update.set_broadcast_digest(*broadcast);
  *update.mutable_remaining() = ToProto(task->expire_time - times.arrival);
  return update;
}

}  // namespace sheaf
