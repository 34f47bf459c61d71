// The model of `tags`: one logistic regression per tag, sharing sparse binary features. Pure functions, used by the
// worker to compute and by the program to verify: both must get the same bits.
//
//   // Select these rows of tensor "w", and all of "b".
//   std::vector<int64_t> rows = TagsRowsTouched(dataset, client, config);
//   TagsUpdate update = TrainTagsClient(dataset, client, config, {.rows = rows, .weights = w, .bias = b});
//   v1::Contribution contribution = BuildTagsContribution(update, config);
//
// Determinism: no libm, no fused multiply-add, no order that depends on addresses; the same input gives the same bits
// in every process and on every machine with IEEE 754 floats. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sheaf/v1/aggregation.pb.h"
#include "workloads/tags/config.h"
#include "workloads/tags/dataset.h"

namespace sheaf {

// Names that program and worker share.
inline constexpr char kTagsComputation[] = "tags";
inline constexpr int kTagsComputationVersion = 1;
// Tensors of the broadcast: FLOAT32 [features, labels] and [labels].
inline constexpr char kTagsWeightsTensor[] = "w";
inline constexpr char kTagsBiasTensor[] = "b";
// Outputs of the round: deltas of the touched rows, and of the bias.
inline constexpr char kTagsRowsOutput[] = "rows";
inline constexpr char kTagsBiasOutput[] = "bias";

// What one client's training changed.
struct TagsUpdate {
  // Sorted and unique.
  std::vector<int64_t> rows;
  // [rows, labels] and [labels].
  std::vector<float> row_deltas;
  std::vector<float> bias_delta;
  int64_t num_examples = 0;
  // Mean over the examples of the summed log loss, each measured before the step it was part of.
  double loss = 0;
};

// Rows of the model that the client's training reads and changes: sorted, unique.
std::vector<int64_t> TagsRowsTouched(const TagsDataset& dataset, int client, const TagsConfig& config);

// What a client reads of the model.
struct TagsSelection {
  // TagsRowsTouched.
  std::span<const int64_t> rows;
  // Those rows, [rows, labels].
  std::span<const float> weights;
  std::span<const float> bias;
};

// One epoch of mini-batch SGD.
TagsUpdate TrainTagsClient(const TagsDataset& dataset, int client, const TagsConfig& config,
                           const TagsSelection& selection);

// The update as the round's outputs expect it, weighted by its number of examples.
v1::Contribution BuildTagsContribution(const TagsUpdate& update, const TagsConfig& config);

// The whole model, as the program keeps it.
struct TagsModel {
  static TagsModel Zero(int num_features, int num_labels);

  int num_features = 0;
  int num_labels = 0;
  // Row-major [features, labels], and [labels].
  std::vector<float> weights;
  std::vector<float> bias;

  std::span<const float> row(int64_t feature) const {
    return std::span(weights).subspan(feature * num_labels, num_labels);
  }
  // The rows in this order, one after the other.
  std::vector<float> Gather(std::span<const int64_t> rows) const;
};

}  // namespace sheaf
