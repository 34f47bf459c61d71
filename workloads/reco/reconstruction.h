// Rebuilding a client's vector and scoring with it: shared by a client's computation and by the evaluation. Private to
// `reco`; pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "workloads/reco/config.h"
#include "workloads/reco/draw.h"

namespace sheaf {

// `row`: an embedding and its bias; `user` is as long as the embedding.
inline float RecoScore(std::span<const float> row, std::span<const float> user) {
  float score = row.back();
  for (size_t d = 0; d < user.size(); ++d) score += row[d] * user[d];
  return score;
}

// Gradient steps from zero, on the support half only. `offsets`: where the row of each of its items begins in
// `weights`.
std::vector<float> RebuildRecoVector(const RecoHalf& support, std::span<const size_t> offsets,
                                     std::span<const float> weights, const RecoConfig& config);

}  // namespace sheaf
