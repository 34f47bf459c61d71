#include "workloads/reco/reconstruction.h"

#include <algorithm>

#include "workloads/logistic.h"

namespace sheaf {

std::vector<float> RebuildRecoVector(const RecoHalf& support, std::span<const size_t> offsets,
                                     std::span<const float> weights, const RecoConfig& config) {
  const auto dimensions = static_cast<size_t>(config.dimensions);
  const size_t num_negatives = support.items.size() - support.num_positives;
  std::vector<float> user(dimensions);
  std::vector<float> gradient(dimensions);
  for (int step = 0; step < config.local_steps; ++step) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (size_t i = 0; i < offsets.size(); ++i) {
      const std::span<const float> row = weights.subspan(offsets[i], dimensions + 1);
      const bool is_positive = i < support.num_positives;
      // Positives and negatives pull alike, however many there are of either.
      const float share = 1.0f / static_cast<float>(is_positive ? support.num_positives : num_negatives);
      const float pull = (Sigmoid(RecoScore(row, user)) - (is_positive ? 1.0f : 0.0f)) * share;
      for (size_t d = 0; d < dimensions; ++d) gradient[d] += pull * row[d];
    }
    for (size_t d = 0; d < dimensions; ++d) user[d] -= static_cast<float>(config.local_rate) * gradient[d];
  }
  return user;
}

}  // namespace sheaf
