#include "server/core/inspection/views.h"

#include <algorithm>
#include <string>

#include "server/core/requests/proto_time.h"

namespace sheaf {

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

v1::Round ToProto(const RoundRecord& record) {
  // What it released, with its phases and metrics, if it succeeded.
  v1::Round proto;
  proto.ParseFromString(record.aggregate);
  v1::Round progress;
  progress.ParseFromString(record.progress);
  proto.set_id(record.id.value());
  proto.mutable_spec()->ParseFromString(record.spec);
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
  proto.set_bytes_down(progress.bytes_down());
  proto.set_error(record.error);
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
  return proto;
}

v1::Attempt ToProto(const AttemptRecord& record) {
  v1::Attempt proto;
  proto.set_number(record.number);
  proto.set_worker(record.worker.value());
  *proto.mutable_lease_time() = ToProto(record.lease_time);
  if (record.end_time != absl::InfiniteFuture()) *proto.mutable_end_time() = ToProto(record.end_time);
  proto.set_outcome(static_cast<v1::AttemptOutcome>(record.outcome));
  proto.set_error(record.error);
  proto.mutable_timings()->ParseFromString(record.timings);
  proto.set_bytes_up(record.bytes_up);
  return proto;
}

v1::Worker ToProto(const WorkerRecord& record, const WorkerProfile* profile, bool is_parked) {
  v1::Worker proto;
  proto.ParseFromString(record.description);
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
