#include "tests/server/core_federation.h"

#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/json_util.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "aggregation/wire/safetensors.h"

namespace sheaf {

std::unique_ptr<ServerParts> CoreFederation::MakeParts() {
  const Core::Options options = {.limits = limits_, .data_directory = "memory", .folds = &jobs_, .receptions = &jobs_};
  return std::make_unique<ServerParts>(store_, payloads_, *this, random_, clock_, options);
}

CoreFederation::CoreFederation(Limits limits) : limits_(limits), parts_(MakeParts()) {
  REQUIRE(parts_->core.Recover(clock_.Now()).ok());
}

void CoreFederation::RunBatch() { REQUIRE(parts_->runner.Run(std::exchange(inbox_, {}), clock_.Now()).ok()); }

void CoreFederation::Run() {
  do {
    RunBatch();
    while (!are_jobs_held_ && jobs_.RunNext()) {
    }
  } while (!inbox_.empty());
}

void CoreFederation::Advance(absl::Duration by) {
  clock_.Advance(by);
  Run();
}

void CoreFederation::CrashAndRestart() {
  inbox_.clear();
  jobs_.Clear();
  parts_.reset();
  payloads_.DropUnsynced();
  parts_ = MakeParts();
  REQUIRE(parts_->core.Recover(clock_.Now()).ok());
  Run();
}

std::string CoreFederation::CreateRound(const v1::RoundSpec& spec) {
  v1::CreateRoundRequest request;
  request.set_request_id("request-" + std::to_string(++num_requests_));
  *request.mutable_spec() = spec;
  const auto response = Call<v1::CreateRoundResponse>("RoundService/CreateRound", request);
  INFO(response.status().ToString());
  REQUIRE(response.ok());
  return response->round().id();
}

v1::Round CoreFederation::GetRound(const std::string& id) {
  v1::GetRoundRequest request;
  request.set_round(id);
  const auto response = Call<v1::GetRoundResponse>("RoundService/GetRound", request);
  REQUIRE(response.ok());
  return response->round();
}

v1::Task CoreFederation::GetTask(const std::string& id) {
  v1::GetTaskRequest request;
  request.set_task(id);
  const auto response = Call<v1::GetTaskResponse>("InspectionService/GetTask", request);
  REQUIRE(response.ok());
  return response->task();
}

v1::SyncResponse CoreFederation::Sync(const v1::SyncRequest& request) {
  const auto response = Call<v1::SyncResponse>("WorkService/Sync", request);
  INFO(response.status().ToString());
  REQUIRE(response.ok());
  return *response;
}

std::string CoreFederation::ReadAggregate(const std::string& id) {
  v1::ReadAggregateRequest request;
  request.set_round(id);
  const auto response = Call<v1::ReadAggregateResponse>("RoundService/ReadAggregate", request);
  INFO(response.status().ToString());
  REQUIRE(response.ok());
  return response->data();
}

v1::RoundSpec SumRound(int num_tasks) {
  v1::RoundSpec spec;
  spec.mutable_computation()->set_name("noop");
  v1::OutputSpec& output = *spec.mutable_aggregate()->add_outputs();
  output.set_name("x");
  output.set_operator_("sum");
  output.set_dtype(v1::FLOAT32);
  output.add_dense_shape(4);
  for (int i = 0; i < num_tasks; ++i)
    spec.mutable_listed()->add_tasks()->set_data_selector("client:" + std::to_string(i));
  return spec;
}

v1::SyncRequest Ask(const std::string& worker, int want) {
  static int num_polls = 0;
  v1::SyncRequest request;
  request.set_protocol_version(1);
  request.set_worker(worker);
  request.set_poll_id("poll-" + std::to_string(++num_polls));
  v1::OfferedComputation& offered = *request.add_computations();
  offered.set_name("noop");
  offered.set_version(1);
  request.set_want(want);
  return request;
}

v1::TaskResult Result(const v1::Lease& lease, float value) {
  const float values[4] = {value, value, value, value};
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name("x");
  output.mutable_dense()->set_dtype(v1::FLOAT32);
  output.mutable_dense()->add_shape(4);
  output.mutable_dense()->set_data(std::string(reinterpret_cast<const char*>(values), sizeof values));
  v1::TaskResult result;
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.set_contribution(contribution.SerializeAsString());
  return result;
}

v1::TaskResult Failure(const v1::Lease& lease, const std::string& message, bool is_permanent) {
  v1::TaskResult result;
  result.set_task(lease.task());
  result.set_lease_token(lease.lease_token());
  result.mutable_failure()->set_message(message);
  result.mutable_failure()->set_permanent(is_permanent);
  return result;
}

v1::HeldLease Held(const v1::Lease& lease, int64_t progress) {
  v1::HeldLease held;
  held.set_task(lease.task());
  held.set_lease_token(lease.lease_token());
  held.set_progress(progress);
  return held;
}

v1::ResultVerdict::Verdict Contribute(CoreFederation& server, const std::string& worker, float value) {
  const v1::SyncResponse granted = server.Sync(Ask(worker, 1));
  REQUIRE(granted.leases_size() == 1);
  v1::SyncRequest request = Ask(worker, 0);
  *request.add_results() = Result(granted.leases(0), value);
  return server.Sync(request).verdicts(0).verdict();
}

float FirstOf(const std::string& aggregate) {
  const auto view = SafetensorsView::Parse(aggregate);
  REQUIRE(view.ok());
  const auto tensor = view->Find("x");
  REQUIRE(tensor.ok());
  float value = 0;
  std::memcpy(&value, (*tensor)->data.data(), sizeof value);
  return value;
}

bool HasJson(const google::protobuf::Message& message) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(message, &json);
  INFO(status.ToString());
  CHECK(status.ok());
  return status.ok();
}

void AddUnknown(google::protobuf::Message& message, size_t size) {
  message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(1000, std::string(size, 'u'));
}

}  // namespace sheaf
