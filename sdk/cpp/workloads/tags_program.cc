#include "sdk/cpp/workloads/tags_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/checksum.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "sdk/cpp/proto_duration.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

// Two independent streams of chance per round.
enum class Stream : uint64_t { kClients = 1, kOrder = 2 };

SeededRandom RoundRandom(uint64_t seed, int number, Stream stream) {
  SeededRandom random(seed);
  return SeededRandom(random.Bits() + static_cast<uint64_t>(number) * 4 + static_cast<uint64_t>(stream));
}

std::string_view AsBytes(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

float FloatAt(std::string_view bytes, size_t i) {
  float value;
  std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
  return value;
}

// The tensor `name` of the aggregate if it is as expected.
absl::StatusOr<const TensorView*> FindTensor(const SafetensorsView& aggregate, std::string_view name, v1::DType dtype,
                                             const std::vector<int64_t>& shape) {
  ASSIGN_OR_RETURN(const TensorView* tensor, aggregate.Find(name));
  if (tensor->dtype != dtype || tensor->shape != shape) {
    return absl::InternalError(
        fmt::format("the aggregate's tensor \"{}\" has another type or shape than asked for", name));
  }
  return tensor;
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
      model_(TagsModel::Zero(dataset.num_features(), dataset.num_labels())) {}

std::vector<int> TagsProgram::SampleClients(int number) const {
  SeededRandom random = RoundRandom(options_.seed, number, Stream::kClients);
  std::vector<int> clients = training_clients_;
  const size_t num_sampled = std::min<size_t>(clients.size(), options_.clients_per_round);
  for (size_t i = 0; i < num_sampled; ++i) std::swap(clients[i], clients[i + random.Below(clients.size() - i)]);
  clients.resize(num_sampled);
  return clients;
}

TagsConfig TagsProgram::RoundConfig(int number) const {
  return {.learning_rate = options_.learning_rate,
          .batch = options_.batch,
          .examples_max = options_.examples_max,
          .seed = RoundRandom(options_.seed, number, Stream::kOrder).Bits(),
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

absl::StatusOr<RoundPlan> TagsProgram::Plan(int number) {
  RoundPlan plan;
  v1::RoundSpec& spec = plan.spec;
  spec.set_population(options_.population);
  spec.set_job(options_.job);
  spec.mutable_computation()->set_name(kTagsComputation);
  spec.mutable_computation()->set_version_min(kTagsComputationVersion);
  spec.mutable_computation()->set_config(RoundConfig(number).Serialize());
  *spec.mutable_aggregate() = AggregateSpec();
  for (int client : SampleClients(number)) {
    spec.mutable_listed()->add_tasks()->set_data_selector(TagsSelector(client));
  }
  if (options_.round_deadline > absl::ZeroDuration())
    *spec.mutable_deadline() = ToProtoDuration(options_.round_deadline);
  if (options_.lease_duration > absl::ZeroDuration())
    *spec.mutable_lease_duration() = ToProtoDuration(options_.lease_duration);

  const std::vector<TensorView> tensors = {
      {.name = kTagsWeightsTensor,
       .dtype = v1::FLOAT32,
       .shape = {model_.num_features, model_.num_labels},
       .data = AsBytes(model_.weights)},
      {.name = kTagsBiasTensor, .dtype = v1::FLOAT32, .shape = {model_.num_labels}, .data = AsBytes(model_.bias)},
  };
  plan.broadcast = EncodeSafetensors(tensors, {{"computation", kTagsComputation}});
  return plan;
}

absl::Status TagsProgram::Apply(int, const SafetensorsView& aggregate, const v1::Round&) {
  const std::string rows = kTagsRowsOutput;
  ASSIGN_OR_RETURN(const TensorView* any_indices, aggregate.Find(rows + ".indices"));
  const int64_t num_rows = any_indices->num_rows();
  ASSIGN_OR_RETURN(const TensorView* indices, FindTensor(aggregate, rows + ".indices", v1::INT64, {num_rows, 1}));
  ASSIGN_OR_RETURN(const TensorView* values,
                   FindTensor(aggregate, rows + ".values", v1::FLOAT32, {num_rows, model_.num_labels}));
  ASSIGN_OR_RETURN(const TensorView* bias, FindTensor(aggregate, kTagsBiasOutput, v1::FLOAT32, {model_.num_labels}));

  std::vector<int64_t> features(num_rows);
  std::memcpy(features.data(), indices->data.data(), indices->data.size());
  for (int64_t feature : features) {
    if (feature < 0 || feature >= model_.num_features) {
      return absl::InternalError(
          fmt::format("the aggregate has row {} of a model of {} rows", feature, model_.num_features));
    }
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    float* row = model_.weights.data() + features[i] * model_.num_labels;
    for (int label = 0; label < model_.num_labels; ++label) {
      row[label] += FloatAt(values->data, i * model_.num_labels + label);
    }
  }
  for (int label = 0; label < model_.num_labels; ++label) model_.bias[label] += FloatAt(bias->data, label);
  return absl::OkStatus();
}

absl::StatusOr<std::map<std::string, double>> TagsProgram::Evaluate(int) {
  return std::map<std::string, double>{{kTagsRecallMetric, TagsRecallAt5(model_, dataset_)}};
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
