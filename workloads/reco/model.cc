#include "workloads/reco/model.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"
#include "sdk/cpp/computation/contribution.h"
#include "workloads/logistic.h"
#include "workloads/reco/reconstruction.h"

namespace sheaf {
namespace {

constexpr float kInitialBias = -3.0f;
constexpr double kInitialDeviation = 0.1;

std::vector<int64_t> SortedUnique(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Where the row of each item of `half` begins in the weights of `rows`.
std::vector<size_t> Offsets(const RecoHalf& half, std::span<const int64_t> rows, size_t width) {
  std::vector<size_t> offsets;
  for (int64_t item : half.items) {
    const auto row = std::lower_bound(rows.begin(), rows.end(), item);
    SHEAF_CHECK(row != rows.end() && *row == item, "row {} was not selected", item);
    offsets.push_back(static_cast<size_t>(row - rows.begin()) * width);
  }
  return offsets;
}

// Close to a normal distribution, without libm: the sum of 12 uniform numbers has variance 1.
float NormalLike(SeededRandom& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.Fraction();
  return static_cast<float>(sum * kInitialDeviation);
}

}  // namespace

RecoUpdate ComputeReco(const RecoDraw& draw, const RecoConfig& config, std::span<const float> weights) {
  const auto width = static_cast<size_t>(config.row_width());
  SHEAF_CHECK(weights.size() == draw.rows.size() * width, "{} weights for {} rows of {}", weights.size(),
              draw.rows.size(), width);
  const std::vector<float> user =
      RebuildRecoVector(draw.support, Offsets(draw.support, draw.rows, width), weights, config);

  RecoUpdate update{.rows = SortedUnique(draw.query.items), .gradients = {}, .loss = 0};
  update.gradients.resize(update.rows.size() * width);
  const std::vector<size_t> read = Offsets(draw.query, draw.rows, width);
  const std::vector<size_t> written = Offsets(draw.query, update.rows, width);
  std::vector<float> errors;
  for (size_t offset : read) errors.push_back(RecoScore(weights.subspan(offset, width), user));
  std::vector<uint16_t> positives(draw.query.num_positives);
  for (size_t i = 0; i < positives.size(); ++i) positives[i] = static_cast<uint16_t>(i);
  const double loss = ScoresToGradient(errors, positives);
  update.loss = errors.empty() ? 0.0 : loss / static_cast<double>(errors.size());
  for (size_t i = 0; i < errors.size(); ++i) {
    float* gradient = update.gradients.data() + written[i];
    for (size_t d = 0; d + 1 < width; ++d) gradient[d] += errors[i] * user[d];
    gradient[width - 1] += errors[i];
  }
  return update;
}

v1::Contribution BuildRecoContribution(const RecoUpdate& update, const RecoConfig& config) {
  v1::Contribution contribution;
  AddRows(kRecoRowsOutput, {config.num_items, config.row_width()}, update.rows, update.gradients, contribution);
  (*contribution.mutable_metrics())["loss"] = update.loss;
  return contribution;
}

RecoModel RecoModel::Initial(int num_items, int dimensions, uint64_t seed) {
  RecoModel model{.num_items = num_items, .width = dimensions + 1, .weights = {}};
  SeededRandom random(seed);
  for (int item = 0; item < num_items; ++item) {
    for (int d = 0; d < dimensions; ++d) model.weights.push_back(NormalLike(random));
    model.weights.push_back(kInitialBias);
  }
  return model;
}

std::vector<float> RecoModel::Gather(std::span<const int64_t> rows) const {
  std::vector<float> gathered;
  for (int64_t row : rows) {
    const auto begin = weights.begin() + row * width;
    gathered.insert(gathered.end(), begin, begin + width);
  }
  return gathered;
}

}  // namespace sheaf
