#include "workloads/tags/model.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "sdk/cpp/computation/contribution.h"
#include "workloads/logistic.h"

namespace sheaf {
namespace {

// The examples a client trains on, in training order: a seeded shuffle, cut off at examples_max.
std::vector<int> TrainingOrder(const TagsDataset& dataset, int client, const TagsConfig& config) {
  const auto [begin, end] = dataset.ClientExamples(client);
  std::vector<int> order(end - begin);
  std::iota(order.begin(), order.end(), begin);
  SeededRandom random(config.seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(client));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  if (order.size() > static_cast<size_t>(config.examples_max)) order.resize(config.examples_max);
  return order;
}

// The rows of one client, with the arithmetic of a step.
class LocalModel {
 public:
  LocalModel(std::span<const int64_t> rows, std::span<const float> weights, std::span<const float> bias)
      : rows_(rows),
        num_labels_(bias.size()),
        weights_(weights.begin(), weights.end()),
        bias_(bias.begin(), bias.end()) {}

  // Scores of one example into `scores`.
  void Score(const TagsDataset::Example& example, std::span<float> scores) const {
    std::copy(bias_.begin(), bias_.end(), scores.begin());
    for (uint32_t feature : example.features) AddTo(scores, weights_.data() + Offset(feature));
  }
  // Moves bias and the example's rows against `gradient` by `step`.
  void Descend(const TagsDataset::Example& example, std::span<const float> gradient, float step) {
    Move(bias_.data(), gradient, step);
    for (uint32_t feature : example.features) Move(weights_.data() + Offset(feature), gradient, step);
  }

  const std::vector<float>& weights() const { return weights_; }
  const std::vector<float>& bias() const { return bias_; }

 private:
  size_t Offset(uint32_t feature) const {
    const auto row = std::lower_bound(rows_.begin(), rows_.end(), static_cast<int64_t>(feature));
    SHEAF_CHECK(row != rows_.end() && *row == feature, "row {} was not selected", feature);
    return static_cast<size_t>(row - rows_.begin()) * num_labels_;
  }
  static void AddTo(std::span<float> sum, const float* row) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += row[i];
  }
  static void Move(float* row, std::span<const float> gradient, float step) {
    for (size_t i = 0; i < gradient.size(); ++i) row[i] -= step * gradient[i];
  }

  std::span<const int64_t> rows_;
  size_t num_labels_;
  std::vector<float> weights_;
  std::vector<float> bias_;
};

std::vector<float> Difference(const std::vector<float>& after, std::span<const float> before) {
  std::vector<float> delta(after.size());
  for (size_t i = 0; i < delta.size(); ++i) delta[i] = after[i] - before[i];
  return delta;
}

}  // namespace

std::vector<int64_t> TagsRowsTouched(const TagsDataset& dataset, int client, const TagsConfig& config) {
  std::vector<int64_t> rows;
  for (int i : TrainingOrder(dataset, client, config)) {
    const TagsDataset::Example example = dataset.example(i);
    rows.insert(rows.end(), example.features.begin(), example.features.end());
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

TagsUpdate TrainTagsClient(const TagsDataset& dataset, int client, const TagsConfig& config,
                           const TagsSelection& selection) {
  const auto& [rows, weights, bias] = selection;
  const size_t num_labels = static_cast<size_t>(dataset.num_labels());
  SHEAF_CHECK(bias.size() == num_labels && weights.size() == rows.size() * num_labels,
              "{} weights and {} biases for {} rows of {} labels", weights.size(), bias.size(), rows.size(),
              num_labels);
  const std::vector<int> order = TrainingOrder(dataset, client, config);
  LocalModel model(rows, weights, bias);
  std::vector<float> gradients(static_cast<size_t>(config.batch) * num_labels);
  double loss = 0;
  for (size_t begin = 0; begin < order.size(); begin += config.batch) {
    // Every gradient of a batch is taken before any step of it.
    const size_t size = std::min<size_t>(config.batch, order.size() - begin);
    for (size_t i = 0; i < size; ++i) {
      const TagsDataset::Example example = dataset.example(order[begin + i]);
      const std::span<float> gradient = std::span(gradients).subspan(i * num_labels, num_labels);
      model.Score(example, gradient);
      loss += ScoresToGradient(gradient, example.labels);
    }
    const float step = static_cast<float>(config.learning_rate / static_cast<double>(size));
    for (size_t i = 0; i < size; ++i) {
      model.Descend(dataset.example(order[begin + i]), std::span(gradients).subspan(i * num_labels, num_labels), step);
    }
  }
  return {.rows = {rows.begin(), rows.end()},
          .row_deltas = Difference(model.weights(), weights),
          .bias_delta = Difference(model.bias(), bias),
          .num_examples = static_cast<int64_t>(order.size()),
          .loss = order.empty() ? 0.0 : loss / static_cast<double>(order.size())};
}

v1::Contribution BuildTagsContribution(const TagsUpdate& update, const TagsConfig& config) {
  v1::Contribution contribution;
  AddRows(kTagsRowsOutput, {config.num_features, config.num_labels}, update.rows, update.row_deltas, contribution);
  AddDense(kTagsBiasOutput, {config.num_labels}, update.bias_delta, contribution);
  contribution.set_weight(static_cast<float>(update.num_examples));
  (*contribution.mutable_metrics())["loss"] = update.loss;
  (*contribution.mutable_metrics())["examples"] = static_cast<double>(update.num_examples);
  return contribution;
}

TagsModel TagsModel::Zero(int num_features, int num_labels) {
  return {.num_features = num_features,
          .num_labels = num_labels,
          .weights = std::vector<float>(static_cast<size_t>(num_features) * num_labels),
          .bias = std::vector<float>(num_labels)};
}

std::vector<float> TagsModel::Gather(std::span<const int64_t> rows) const {
  std::vector<float> gathered;
  gathered.reserve(rows.size() * num_labels);
  for (int64_t feature : rows) gathered.insert(gathered.end(), row(feature).begin(), row(feature).end());
  return gathered;
}

}  // namespace sheaf
