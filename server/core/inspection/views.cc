#include "server/core/inspection/views.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/rounds/attempt_placement.h"
#include "server/stored/attempt_timings.h"
#include "server/stored/round_progress.h"
#include "server/stored/round_release.h"
#include "server/stored/round_spec.h"
#include "server/stored/worker_description.h"

namespace sheaf {
namespace {

// A state has one number in every store and for every client: it is cast from the one to the other.
template <typename Stored>
constexpr bool Agree(Stored stored, int shown) {
  return static_cast<int>(stored) == shown;
}
static_assert(Agree(RoundState::kAnnounced, v1::ANNOUNCED) && Agree(RoundState::kCollecting, v1::COLLECTING) &&
              Agree(RoundState::kSealing, v1::SEALING) && Agree(RoundState::kSucceeded, v1::SUCCEEDED) &&
              Agree(RoundState::kFailed, v1::FAILED) && Agree(RoundState::kCancelled, v1::CANCELLED) &&
              Agree(RoundState::kCancelled, v1::RoundState_MAX));
static_assert(Agree(TaskState::kQueued, v1::QUEUED) && Agree(TaskState::kLeased, v1::LEASED) &&
              Agree(TaskState::kSucceeded, v1::TASK_SUCCEEDED) && Agree(TaskState::kFailed, v1::TASK_FAILED) &&
              Agree(TaskState::kCancelled, v1::TASK_CANCELLED) && Agree(TaskState::kBuried, v1::BURIED) &&
              Agree(TaskState::kBuried, v1::TaskState_MAX));
static_assert(Agree(AttemptOutcome::kRunning, v1::ATTEMPT_OUTCOME_UNSPECIFIED) &&
              Agree(AttemptOutcome::kSucceeded, v1::ATTEMPT_SUCCEEDED) &&
              Agree(AttemptOutcome::kFailed, v1::ATTEMPT_FAILED) && Agree(AttemptOutcome::kLost, v1::ATTEMPT_LOST) &&
              Agree(AttemptOutcome::kReleased, v1::ATTEMPT_RELEASED) &&
              Agree(AttemptOutcome::kCancelled, v1::ATTEMPT_CANCELLED) &&
              Agree(AttemptOutcome::kCancelled, v1::AttemptOutcome_MAX));

v1::PhaseInterval OnTheClock(const Interval& interval, absl::Time origin) {
  v1::PhaseInterval proto;
  proto.set_phase(interval.phase);
  *proto.mutable_begin_time() = ToProto(origin + interval.begin);
  *proto.mutable_end_time() = ToProto(origin + interval.end);
  proto.set_attempt(interval.attempt);
  proto.set_worker(interval.worker);
  return proto;
}

}  // namespace

v1::TaskCounts ToProto(const TaskCounts& counts) {
  v1::TaskCounts proto;
  proto.set_queued(counts.queued);
  proto.set_leased(counts.leased);
  proto.set_succeeded(counts.succeeded);
  proto.set_failed(counts.failed);
  proto.set_cancelled(counts.cancelled);
  proto.set_buried(counts.buried);
  return proto;
}

absl::StatusOr<v1::Round> ToProto(const RoundRecord& record) {
  v1::Round proto;
  proto.set_id(record.id.value());
  ASSIGN_OR_RETURN(*proto.mutable_spec(), DecodeSpec(record));
  proto.set_state(static_cast<v1::RoundState>(record.state));
  proto.set_etag(std::to_string(record.version));
  *proto.mutable_create_time() = ToProto(record.create_time);
  *proto.mutable_deadline_time() = ToProto(record.deadline_time);
  if (record.end_time != absl::InfiniteFuture()) *proto.mutable_end_time() = ToProto(record.end_time);
  *proto.mutable_tasks() = ToProto(record.tasks);
  proto.set_num_failed_attempts(record.num_failed_attempts);
  proto.set_num_lost_attempts(record.num_lost_attempts);
  proto.set_num_contributions(record.num_contributions);
  proto.set_num_clients(record.num_clients);
  proto.set_bytes_up(record.bytes_up);
  ASSIGN_OR_RETURN(const RoundProgress progress, DecodeProgress(record));
  proto.set_bytes_down(progress.bytes_down);
  proto.set_num_speculative_wins(progress.num_speculative_wins);
  proto.mutable_contributions_by_staleness()->insert(progress.staleness.begin(), progress.staleness.end());
  proto.set_error(record.error);
  if (record.state != RoundState::kSucceeded) return proto;
  ASSIGN_OR_RETURN(RoundRelease release, DecodeRelease(record));
  *proto.mutable_aggregate() = std::move(release.aggregate);
  *proto.mutable_phases() = std::move(release.phases);
  for (const Interval& interval : release.critical_path) {
    v1::PhaseInterval& added = *proto.add_critical_path() = OnTheClock(interval, record.create_time);
    if (interval.attempt > 0) added.set_task(TaskId{record.id, interval.task_index}.ToString());
  }
  proto.mutable_metrics()->insert(release.metrics.begin(), release.metrics.end());
  return proto;
}

v1::Task ToProto(const TaskRecord& record) {
  v1::Task proto;
  proto.set_id(record.id.ToString());
  proto.set_round(record.id.round.value());
  proto.set_index(record.id.index);
  proto.set_state(static_cast<v1::TaskState>(record.state));
  proto.set_data_selector(record.data_selector);
  if (record.state == TaskState::kQueued) *proto.mutable_available_time() = ToProto(record.available_time);
  proto.set_worker(record.worker.value());
  proto.set_num_attempts(record.num_attempts);
  proto.set_num_failed(record.num_failed);
  proto.set_num_lost(record.num_lost);
  proto.set_last_error(record.last_error);
  *proto.mutable_create_time() = ToProto(record.create_time);
  if (record.end_time != absl::InfiniteFuture()) *proto.mutable_end_time() = ToProto(record.end_time);
  if (record.origin) proto.set_origin(record.origin->ToString());
  proto.set_staleness(record.staleness);
  if (record.carried_to) proto.set_carried_to(record.carried_to->ToString());
  return proto;
}

absl::StatusOr<v1::Attempt> ToProto(const TaskId& task, const AttemptRecord& record) {
  v1::Attempt proto;
  proto.set_number(record.number);
  proto.set_worker(record.worker.value());
  *proto.mutable_lease_time() = ToProto(record.lease_time);
  if (record.end_time != absl::InfiniteFuture()) *proto.mutable_end_time() = ToProto(record.end_time);
  proto.set_outcome(static_cast<v1::AttemptOutcome>(record.outcome));
  proto.set_error(record.error);
  ASSIGN_OR_RETURN(AttemptTimings timings, DecodeTimings(task, record));
  if (proto.has_end_time()) {
    for (const Interval& interval : IntervalsOf(timings, record.end_time - record.lease_time)) {
      *proto.add_intervals() = OnTheClock(interval, record.lease_time);
    }
  }
  *proto.mutable_timings() = std::move(timings.durations);
  proto.set_bytes_up(record.bytes_up);
  return proto;
}

absl::StatusOr<v1::Worker> ToProto(const WorkerRecord& record, const WorkerProfile* profile, bool is_parked) {
  ASSIGN_OR_RETURN(v1::Worker proto, DecodeDescription(record));
  proto.set_name(record.name.value());
  proto.set_population(record.population);
  *proto.mutable_first_seen_time() = ToProto(record.first_seen_time);
  const absl::Time seen =
      profile == nullptr ? record.last_seen_time : std::max(record.last_seen_time, profile->last_seen_time);
  *proto.mutable_last_seen_time() = ToProto(seen);
  proto.set_is_draining(record.is_draining);
  proto.set_is_parked(is_parked);
  proto.set_num_succeeded(record.num_succeeded);
  proto.set_num_failed(record.num_failed);
  proto.set_num_lost(record.num_lost);
  return proto;
}

}  // namespace sheaf
