#include "workloads/tags/program.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "aggregation/wire/safetensors_patch.h"
#include "base/checksum.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "sdk/cpp/program/released_rows.h"
#include "workloads/brute_force.h"
#include "workloads/client_sampling.h"
#include "workloads/tags/recall.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

std::string_view AsBytes(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

absl::StatusOr<TagsMean> ParseTagsMean(std::string_view text) {
  if (text == "coordinate") return TagsMean::kCoordinate;
  if (text == "client") return TagsMean::kClient;
  return absl::InvalidArgumentError(fmt::format("\"{}\" is no mean; say \"coordinate\" or \"client\"", text));
}

TagsProgram::TagsProgram(const TagsDataset& dataset, TagsProgramOptions options)
    : dataset_(dataset),
      options_(std::move(options)),
      training_clients_(dataset.TrainingClients()),
      model_(TagsModel::Zero(dataset.num_features(), dataset.num_labels())),
      optimizer_(*ServerOptimizer::Create("FedAvg")) {}

std::vector<int> TagsProgram::SampleClients(int number) const {
  SeededRandom random = RoundRandom(options_.seed, number, RoundStream::kClients);
  return sheaf::SampleClients(training_clients_, options_.clients_per_round, random);
}

TagsConfig TagsProgram::RoundConfig(int number) const {
  return {.learning_rate = options_.learning_rate,
          .batch = options_.batch,
          .examples_max = options_.examples_max,
          .seed = RoundRandom(options_.seed, number, RoundStream::kTraining).Bits(),
          .num_features = model_.num_features,
          .num_labels = model_.num_labels};
}

v1::AggregateSpec TagsProgram::AggregateSpec() const {
  v1::AggregateSpec spec;
  v1::OutputSpec& rows = *spec.add_outputs();
  rows.set_name(kTagsRowsOutput);
  rows.set_operator_(options_.mean == TagsMean::kCoordinate ? "weighted_coordinate_mean" : "weighted_client_mean");
  rows.set_dtype(v1::FLOAT32);
  rows.add_dense_shape(model_.num_features);
  rows.add_dense_shape(model_.num_labels);
  rows.set_index_dims(1);
  v1::OutputSpec& bias = *spec.add_outputs();
  bias.set_name(kTagsBiasOutput);
  bias.set_operator_("weighted_mean");
  bias.set_dtype(v1::FLOAT32);
  bias.add_dense_shape(model_.num_labels);
  return spec;
}

absl::StatusOr<v1::RoundSpec> TagsProgram::Plan(int number) {
  v1::RoundSpec spec;
  spec.set_population(options_.population);
  spec.set_job(options_.job);
  spec.mutable_computation()->set_name(kTagsComputation);
  spec.mutable_computation()->set_version_min(kTagsComputationVersion);
  spec.mutable_computation()->set_config(RoundConfig(number).Serialize());
  *spec.mutable_aggregate() = AggregateSpec();
  for (int client : SampleClients(number)) {
    spec.mutable_listed()->add_tasks()->set_data_selector(TagsSelector(client));
  }
  if (options_.round_deadline > absl::ZeroDuration()) *spec.mutable_deadline() = ToProto(options_.round_deadline);
  if (options_.lease_duration > absl::ZeroDuration()) *spec.mutable_lease_duration() = ToProto(options_.lease_duration);
  return spec;
}

absl::StatusOr<std::string> TagsProgram::Broadcast(int) {
  const std::vector<TensorView> tensors = {
      {.name = kTagsWeightsTensor,
       .dtype = v1::FLOAT32,
       .shape = {model_.num_features, model_.num_labels},
       .data = AsBytes(model_.weights)},
      {.name = kTagsBiasTensor, .dtype = v1::FLOAT32, .shape = {model_.num_labels}, .data = AsBytes(model_.bias)},
  };
  return EncodeSafetensors(tensors, {{"computation", kTagsComputation}});
}

absl::StatusOr<std::optional<std::string>> TagsProgram::Patch(int, const std::string& base) {
  const std::vector<float> rows = model_.Gather(moved_rows_);
  const std::vector<TensorChange> changes = {
      {.tensor = kTagsWeightsTensor,
       .rows = moved_rows_,
       .dtype = v1::FLOAT32,
       .shape = {static_cast<int64_t>(moved_rows_.size()), model_.num_labels},
       .data = AsBytes(rows)},
      {.tensor = kTagsBiasTensor, .dtype = v1::FLOAT32, .shape = {model_.num_labels}, .data = AsBytes(model_.bias)},
  };
  return EncodeSafetensorsPatch(base, changes);
}

absl::Status TagsProgram::Apply(int, const SafetensorsView& aggregate, const v1::Round&) {
  ASSIGN_OR_RETURN(ReleasedRows rows, ReadReleasedRows(aggregate, kTagsRowsOutput,
                                                       {.num_rows = model_.num_features, .width = model_.num_labels}));
  ASSIGN_OR_RETURN(const std::vector<float> bias, ReadReleasedVector(aggregate, kTagsBiasOutput, model_.num_labels));
  RETURN_IF_ERROR(
      optimizer_.MoveRows(kTagsWeightsTensor, rows.indices, rows.values, model_.num_labels, model_.weights));
  moved_rows_ = std::move(rows.indices);
  return optimizer_.MoveDense(kTagsBiasTensor, bias, model_.bias);
}

absl::StatusOr<std::map<std::string, double>> TagsProgram::Evaluate(int) {
  return std::map<std::string, double>{{kTagsRecallMetric, TagsRecallAt5(model_, dataset_)}};
}

absl::StatusOr<Verification> TagsProgram::Verify(int, const RoundPlan& plan, const SafetensorsView& aggregate) {
  ASSIGN_OR_RETURN(const TagsConfig config, TagsConfig::Parse(plan.spec.computation().config()));
  std::vector<v1::Contribution> contributions;
  for (const v1::TaskSpec& task : plan.spec.listed().tasks()) {
    ASSIGN_OR_RETURN(const int client, ParseTagsSelector(task.data_selector(), dataset_));
    const std::vector<int64_t> rows = TagsRowsTouched(dataset_, client, config);
    const TagsUpdate update =
        TrainTagsClient(dataset_, client, config, {.rows = rows, .weights = model_.Gather(rows), .bias = model_.bias});
    contributions.push_back(BuildTagsContribution(update, config));
  }
  return VerifyByBruteForce(plan.spec.aggregate(), contributions, aggregate);
}

std::string TagsProgram::ModelDigest() const {
  Sha256 hash;
  hash.Update(AsBytes(model_.weights));
  hash.Update(AsBytes(model_.bias));
  return std::move(hash).Hex();
}

int64_t TagsProgram::model_bytes() const {
  return static_cast<int64_t>((model_.weights.size() + model_.bias.size()) * sizeof(float));
}

}  // namespace sheaf
