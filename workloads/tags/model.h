// The model of `tags`: one logistic regression per tag, sharing sparse binary features. Pure functions, used by the
// worker to compute and by the program to verify: both must get the same bits.
//
//   ASSIGN_OR_RETURN(TagsConfig config, TagsConfig::Parse(lease.computation().config()));
//   std::vector<int64_t> rows = TagsRowsTouched(dataset, client, config);     // Select these rows of tensor "w", and
//   all of "b". TagsUpdate update = TrainTagsClient(dataset, client, config, rows, w_rows, bias); v1::Contribution
//   contribution = BuildTagsContribution(update, config);
//
// Determinism: no libm, no fused multiply-add, no order that depends on addresses; the same input gives the same bits
// in every process and on every machine with IEEE 754 floats. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sheaf/v1/aggregation.pb.h"
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

// How a client trains; travels as Computation.config, in JSON:
// {"batch":10,"examples_max":512,"features":56942,"labels":500,"learning_rate":1.0,"seed":7}
struct TagsConfig {
  double learning_rate = 1.0;
  int batch = 10;
  // A client with more examples trains on this many of them, drawn with the seed.
  int examples_max = 512;
  // Of the round; together with the client's number it gives the order of the examples.
  uint64_t seed = 0;
  // Shape of the model. A worker whose dataset has another shape must not compute.
  int num_features = 0;
  int num_labels = 0;

  std::string Serialize() const;
  // INVALID_ARGUMENT naming the key that is missing, unknown or out of range.
  static absl::StatusOr<TagsConfig> Parse(std::string_view json);
  // FAILED_PRECONDITION if `dataset` has another shape than this round's model.
  absl::Status CheckFits(const TagsDataset& dataset) const;
};

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

// One epoch of mini-batch SGD. `rows` is TagsRowsTouched; `weights` holds those rows of the model, [rows, labels].
TagsUpdate TrainTagsClient(const TagsDataset& dataset, int client, const TagsConfig& config,
                           std::span<const int64_t> rows, std::span<const float> weights, std::span<const float> bias);

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

// Of the labels of all held-out examples, the share that is among the 5 highest scores of its example (micro recall@5).
double TagsRecallAt5(const TagsModel& model, const TagsDataset& dataset);
// The same for a predictor that always answers the 5 most frequent labels of the training clients: the floor.
double TagsPopularityRecallAt5(const TagsDataset& dataset);

}  // namespace sheaf
