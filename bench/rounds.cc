#include "bench/rounds.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "proto/time.h"

namespace sheaf::bench {

v1::CreateRoundRequest ARound(const std::string& request_id, int num_tasks, int64_t num_elements) {
  v1::CreateRoundRequest request;
  request.set_request_id(request_id);
  v1::RoundSpec& spec = *request.mutable_spec();
  spec.set_job("bench");
  spec.mutable_computation()->set_name("noop");
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(num_elements);
  spec.mutable_open_slots()->set_count(num_tasks);
  spec.mutable_open_slots()->mutable_task();
  return request;
}

absl::StatusOr<std::string> CreateRound(Transport& transport, const std::string& request_id, int num_tasks) {
  ASSIGN_OR_RETURN(const v1::CreateRoundResponse response,
                   BlockingCall(transport, kCreateRound, ARound(request_id, num_tasks), {.timeout = absl::Minutes(1)}));
  return response.round().id();
}

absl::Status RunRound(Transport& transport, const std::string& request_id, int num_tasks) {
  ASSIGN_OR_RETURN(const v1::CreateRoundResponse created,
                   BlockingCall(transport, kCreateRound, ARound(request_id, num_tasks)));
  v1::Round round = created.round();
  while (round.state() != v1::SUCCEEDED) {
    v1::GetRoundRequest request;
    request.set_round(round.id());
    request.set_etag(round.etag());
    request.mutable_wait()->set_seconds(20);
    ASSIGN_OR_RETURN(v1::GetRoundResponse response, BlockingCall(transport, kGetRound, request));
    round = std::move(*response.mutable_round());
    if (round.state() > v1::SUCCEEDED) return absl::InternalError("the round failed: " + round.error());
  }
  v1::ReadAggregateRequest request;
  request.set_round(round.id());
  return BlockingCall(transport, kReadAggregate, request).status();
}

std::string AContribution(int64_t num_elements) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(num_elements);
  // All are 0.5.
  std::string& data = *output.mutable_dense()->mutable_data();
  for (int64_t i = 0; i < num_elements; ++i) data.append({'\x00', '\x00', '\x00', '\x3f'});
  return contribution.SerializeAsString();
}

v1::SyncRequest APoll(const std::string& worker, int64_t poll, int want, absl::Duration wait) {
  v1::SyncRequest request;
  request.set_protocol_version(1);
  request.set_worker(worker);
  request.set_poll_id(fmt::format("{}", poll));
  request.set_want(want);
  *request.mutable_wait() = ToProto(wait);
  v1::OfferedComputation& computation = *request.add_computations();
  computation.set_name("noop");
  computation.set_version(1);
  return request;
}

void AddResult(const v1::Lease& lease, const std::string& contribution, v1::SyncRequest& request) {
  v1::TaskResult& result = *request.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_contribution(contribution);
}

}  // namespace sheaf::bench
