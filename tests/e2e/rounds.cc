#include "tests/e2e/rounds.h"

#include <algorithm>

#include "base/version.h"
#include "probe/one_hot.h"
#include "proto/methods.h"
#include "proto/time.h"
#include "sdk/cpp/client/round_client.h"

namespace sheaf {
namespace {

// The value of an OK StatusOr; fails the test otherwise.
template <typename T>
T Ok(absl::StatusOr<T> value) {
  INFO(value.status().ToString());
  REQUIRE(value.ok());
  return *std::move(value);
}

}  // namespace

v1::RoundSpec OneHotRound(const OneHotOptions& options) {
  v1::RoundSpec spec;
  spec.set_job("e2e");
  spec.mutable_computation()->set_name("slow");
  *spec.mutable_aggregate() = OneHotAggregate(std::max<int64_t>(options.size, options.num_tasks));
  for (int i = 0; i < options.num_tasks; ++i) {
    v1::TaskSpec& task = *spec.mutable_listed()->add_tasks();
    task.set_payload(fmt::format("{} {}", absl::FormatDuration(options.work), i));
    if (i >= options.num_tasks - options.num_gated) (*task.mutable_requirements())["gate"] = "open";
  }
  *spec.mutable_lease_duration() = ToProto(options.lease);
  spec.set_durability(options.durability);
  *spec.mutable_deadline() = ToProto(absl::Minutes(5));
  return spec;
}

std::string StartRound(Federation& federation, const v1::RoundSpec& spec) {
  return Ok(CreateRound(federation.transport(), federation.random().Token(16), spec)).id();
}

v1::Round RoundOf(Transport& transport, const std::string& id) {
  v1::GetRoundRequest request;
  request.set_round(id);
  return Ok(BlockingCall(transport, kGetRound, request)).round();
}

v1::Task TaskOf(Transport& transport, const std::string& id) {
  v1::GetTaskRequest request;
  request.set_task(id);
  return Ok(BlockingCall(transport, kGetTask, request)).task();
}

std::vector<v1::Task> TasksOf(Transport& transport, const std::string& round, v1::TaskState state) {
  v1::ListTasksRequest request;
  request.set_round(round);
  request.set_page_size(1000);
  if (state != v1::TASK_STATE_UNSPECIFIED) request.add_states(state);
  const v1::ListTasksResponse response = Ok(BlockingCall(transport, kListTasks, request));
  return {response.tasks().begin(), response.tasks().end()};
}

v1::Round Await(Federation& federation, const std::string& id, absl::Duration timeout) {
  v1::Round round = Ok(WaitForRound(federation.transport(), federation.clock(), id, {.timeout = timeout}));
  INFO(round.ShortDebugString());
  REQUIRE(round.state() == v1::SUCCEEDED);
  return round;
}

std::vector<int64_t> CountsOf(Transport& transport, const std::string& round) {
  const std::string file = Ok(ReadAggregate(transport, round));
  std::vector<int64_t> counts = Ok(OneHotCounts(file, OneHotForm::kMeeting));
  while (!counts.empty() && counts.back() == 0) counts.pop_back();
  return counts;
}

v1::SyncRequest APoll(const std::string& name, const std::string& poll_id, int want, absl::Duration wait) {
  v1::SyncRequest request;
  request.set_protocol_version(kProtocolVersionMax);
  request.set_worker(name);
  request.set_poll_id(poll_id);
  request.set_want(want);
  *request.mutable_wait() = ToProto(wait);
  for (const char* computation : {"noop", "one_hot", "slow"}) {
    v1::OfferedComputation& offer = *request.add_computations();
    offer.set_name(computation);
    offer.set_version(1);
  }
  return request;
}

v1::SyncResponse SyncOnce(Transport& transport, const v1::SyncRequest& request) {
  return Ok(BlockingCall(transport, kSync, request, {.timeout = absl::Seconds(70)}));
}

void AddResult(const v1::Lease& lease, v1::SyncRequest& request) {
  const std::string& payload = lease.payload();
  const int64_t index = std::stoll(payload.substr(payload.find(' ') + 1));
  v1::TaskResult& result = *request.add_results();
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_contribution(Ok(OneHotContribution(lease.aggregate(), index, OneHotForm::kMeeting)).SerializeAsString());
}

void AddHeld(const v1::Lease& lease, int64_t progress, v1::SyncRequest& request) {
  v1::HeldLease& held = *request.add_held();
  held.set_task(lease.task());
  held.set_lease_token(lease.lease_token());
  held.set_progress(progress);
}

std::vector<std::string> VerdictsOf(const v1::SyncResponse& response) {
  std::vector<std::string> names;
  for (const v1::ResultVerdict& verdict : response.verdicts()) {
    names.push_back(v1::ResultVerdict::Verdict_Name(verdict.verdict()));
  }
  return names;
}

}  // namespace sheaf
