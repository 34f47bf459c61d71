// The model of `reco`: federated reconstruction (Singhal et al., 2021) of a matrix factorisation. A client has a vector
// of its own, which it rebuilds whenever it takes part, from half of its items, and never uploads; the other half gives
// the gradients of the item rows, which are all that leaves it. Pure functions, used by the worker to compute and by
// the program to verify: both must get the same bits.
//
//   RecoDraw draw = DrawReco(dataset.items(client), client, config);
//   // Select rows `draw.rows` of tensor "items".
//   v1::Contribution contribution = BuildRecoContribution(ComputeReco(draw, config, rows), config);
//
// A row of the model is an embedding of `dimensions` elements and, last, the item's bias; the score of an item is the
// dot product of its embedding with the client's vector, plus the bias. Loss: logistic, against items drawn at random.
// Determinism as in workloads/tags/model.h. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sheaf/v1/aggregation.pb.h"
#include "workloads/reco/config.h"
#include "workloads/reco/draw.h"

namespace sheaf {

// Names that program and worker share.
inline constexpr char kRecoComputation[] = "reco";
inline constexpr int kRecoComputationVersion = 1;
// Tensor of the broadcast: FLOAT32 [items, dimensions + 1].
inline constexpr char kRecoItemsTensor[] = "items";
// Output of the round: the sum of the gradients of the item rows.
inline constexpr char kRecoRowsOutput[] = "rows";

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

}  // namespace sheaf
