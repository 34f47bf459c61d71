#include "workloads/hitters/program.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "proto/time.h"
#include "workloads/brute_force.h"
#include "workloads/client_selector.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

v1::AggregateSpec AggregateSpec(int64_t min_contributors) {
  v1::AggregateSpec spec;
  v1::OutputSpec& counts = *spec.add_outputs();
  counts.set_name(kHittersOutput);
  counts.set_operator_("keyed_sum");
  counts.set_dtype(v1::INT64);
  counts.set_key_type(v1::STRING_KEYS);
  counts.set_min_contributors(min_contributors);
  return spec;
}

// The elements of one of the output's tensors. INTERNAL if it has another type or not `size` elements.
absl::StatusOr<std::vector<int64_t>> Numbers(const SafetensorsView& aggregate, std::string_view part, int64_t size) {
  const std::string name = fmt::format("{}.{}", kHittersOutput, part);
  ASSIGN_OR_RETURN(const TensorView* tensor, aggregate.Find(name));
  if (tensor->dtype != v1::INT64 || tensor->shape != std::vector<int64_t>{size}) {
    return absl::InternalError(fmt::format("the aggregate's tensor \"{}\" is not {} integers", name, size));
  }
  std::vector<int64_t> numbers(static_cast<size_t>(size));
  if (size > 0) std::memcpy(numbers.data(), tensor->data.data(), tensor->data.size());
  return numbers;
}

absl::StatusOr<std::vector<HittersRow>> ReadTable(const SafetensorsView& aggregate, int64_t size) {
  ASSIGN_OR_RETURN(const TensorView* keys, aggregate.Find(fmt::format("{}.keys", kHittersOutput)));
  ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, Numbers(aggregate, "key_offsets", size + 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, Numbers(aggregate, "values", size));
  const int64_t num_bytes = static_cast<int64_t>(keys->data.size());
  std::vector<HittersRow> table;
  for (size_t i = 0; i < values.size(); ++i) {
    if (offsets[i] < 0 || offsets[i] > offsets[i + 1] || offsets[i + 1] > num_bytes) {
      return absl::InternalError(fmt::format("the aggregate's key {} is not inside its keys", i));
    }
    table.push_back({std::string(keys->data.substr(offsets[i], offsets[i + 1] - offsets[i])), values[i]});
  }
  return table;
}

}  // namespace

v1::Contribution BuildHittersContribution(const HittersDataset& dataset, int client) {
  v1::Contribution contribution;
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name(kHittersOutput);
  v1::KeyedTable& table = *output.mutable_keyed();
  v1::Tensor& values = *table.mutable_values();
  values.set_dtype(v1::INT64);
  values.add_shape(static_cast<int64_t>(dataset.client(client).size()));
  for (const NameCount& entry : dataset.client(client)) {
    table.add_string_keys(dataset.name(entry.name));
    values.mutable_data()->append(reinterpret_cast<const char*>(&entry.count), sizeof entry.count);
  }
  return contribution;
}

absl::Status CheckHittersConfig(const std::string& config, const HittersDataset& dataset) {
  if (config == dataset.digest()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this worker's dependencies were made from another package index than the program's; give all workers the "
      "program's snapshot");
}

HittersProgram::HittersProgram(const HittersDataset& dataset, HittersProgramOptions options)
    : dataset_(dataset), options_(std::move(options)) {}

absl::StatusOr<v1::RoundSpec> HittersProgram::Plan(int) {
  v1::RoundSpec spec;
  spec.set_population(options_.population);
  spec.set_job(options_.job);
  spec.mutable_computation()->set_name(kHittersComputation);
  spec.mutable_computation()->set_version_min(kHittersComputationVersion);
  spec.mutable_computation()->set_config(dataset_.digest());
  *spec.mutable_aggregate() = AggregateSpec(options_.min_contributors);
  for (int client = 0; client < dataset_.num_clients(); ++client) {
    spec.mutable_listed()->add_tasks()->set_data_selector(ClientSelector(client));
  }
  if (options_.round_deadline > absl::ZeroDuration()) {
    *spec.mutable_deadline() = ToProto(options_.round_deadline);
  }
  return spec;
}

absl::Status HittersProgram::Apply(int, const SafetensorsView& aggregate, const v1::Round& round) {
  if (round.aggregate().outputs_size() != 1) return absl::InternalError("the round did not release one output");
  const v1::OutputSummary& summary = round.aggregate().outputs(0);
  ASSIGN_OR_RETURN(table_, ReadTable(aggregate, summary.released()));
  num_withheld_ = summary.touched() - summary.released();
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, double>> HittersProgram::Evaluate(int) {
  return std::map<std::string, double>{{"names_released", static_cast<double>(table_.size())},
                                       {"names_withheld", static_cast<double>(num_withheld_)}};
}

absl::StatusOr<Verification> HittersProgram::Verify(int, const RoundPlan& plan, const SafetensorsView& aggregate) {
  std::vector<v1::Contribution> contributions;
  for (int client = 0; client < dataset_.num_clients(); ++client) {
    contributions.push_back(BuildHittersContribution(dataset_, client));
  }
  return VerifyByBruteForce(plan.spec.aggregate(), contributions, aggregate);
}

}  // namespace sheaf
