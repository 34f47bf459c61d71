// The model of `reco`: federated reconstruction (Singhal et al., 2021) of a matrix factorisation. A client has a vector
// of its own, which it rebuilds whenever it takes part, from half of its items, and never uploads; the other half gives
// the gradients of the item rows, which are all that leaves it. Pure functions, used by the worker to compute and by
// the program to verify: both must get the same bits.
//
//   ASSIGN_OR_RETURN(RecoConfig config, RecoConfig::Parse(lease.computation().config()));
//   RecoDraw draw = DrawReco(dataset.items(client), client, config);
//   // Select rows `draw.rows` of tensor "items".
//   v1::Contribution contribution = BuildRecoContribution(ComputeReco(draw, config, rows), config);
//
// A row of the model is an embedding of `dimensions` elements and, last, the item's bias; the score of an item is the
// dot product of its embedding with the client's vector, plus the bias. Loss: logistic, against items drawn at random.
// Determinism as in tags_model.h. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sheaf/v1/aggregation.pb.h"
#include "workloads/reco/dataset.h"

namespace sheaf {

// Names that program and worker share.
inline constexpr char kRecoComputation[] = "reco";
inline constexpr int kRecoComputationVersion = 1;
// Tensor of the broadcast: FLOAT32 [items, dimensions + 1].
inline constexpr char kRecoItemsTensor[] = "items";
// Output of the round: the sum of the gradients of the item rows.
inline constexpr char kRecoRowsOutput[] = "rows";

// How a client computes; travels as Computation.config, in JSON:
// {"dimensions":16,"items":15460,"local_rate":2.0,"local_steps":5,"negatives":80,"seed":7}
struct RecoConfig {
  int dimensions = 16;
  // Steps that rebuild the client's vector, and how far each goes.
  int local_steps = 5;
  double local_rate = 2.0;
  // Items drawn to be scored low, for each half.
  int negatives = 80;
  // Of the round; together with the client's number it gives the halves and the negatives.
  uint64_t seed = 0;
  // Shape of the model. A worker whose dataset has another shape must not compute.
  int num_items = 0;

  int row_width() const { return dimensions + 1; }
  std::string Serialize() const;
  // INVALID_ARGUMENT naming the key that is missing, unknown or out of range.
  static absl::StatusOr<RecoConfig> Parse(std::string_view json);
  // FAILED_PRECONDITION if `dataset` has another shape than this round's model.
  absl::Status CheckFits(const RecoDataset& dataset) const;
};

// A half of a client's items, followed by the negatives drawn for it.
struct RecoHalf {
  std::vector<int64_t> items;
  size_t num_positives = 0;
};

// What a client uses in one round.
struct RecoDraw {
  RecoHalf support;
  RecoHalf query;
  // All items of both, sorted and unique: the rows the client reads.
  std::vector<int64_t> rows;
};

RecoDraw DrawReco(std::span<const uint32_t> items, int client, const RecoConfig& config);

// What leaves the client.
struct RecoUpdate {
  // Rows of the query half, sorted and unique, and their gradients [rows, row_width].
  std::vector<int64_t> rows;
  std::vector<float> gradients;
  // Mean log loss over the query half and its negatives.
  double loss = 0;
};

// `weights` holds draw.rows of the model, [rows, row_width].
RecoUpdate ComputeReco(const RecoDraw& draw, const RecoConfig& config, std::span<const float> weights);
v1::Contribution BuildRecoContribution(const RecoUpdate& update, const RecoConfig& config);

// The whole model, as the program keeps it.
struct RecoModel {
  // Small random embeddings, and biases that say that most packages need no given item.
  static RecoModel Initial(int num_items, int dimensions, uint64_t seed);

  int num_items = 0;
  int width = 0;
  // Row-major [num_items, width].
  std::vector<float> weights;

  std::vector<float> Gather(std::span<const int64_t> rows) const;
};

// Of the query items of held-out clients, the share that is among the 20 highest scores of its client, whose vector is
// rebuilt from its support items (micro recall@20). Support items are not candidates. At most 1,000 clients count.
double RecoRecallAt20(const RecoModel& model, const RecoDataset& dataset, const RecoConfig& config);
// The same for a predictor that always answers the most frequent items of the training clients: the floor.
double RecoPopularityRecallAt20(const RecoDataset& dataset, const RecoConfig& config);

}  // namespace sheaf
