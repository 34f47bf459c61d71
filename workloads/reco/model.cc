#include "workloads/reco/model.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/random.h"
#include "workloads/logistic.h"
#include "workloads/reco/reconstruction.h"

namespace sheaf {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr float kInitialBias = -3.0f;
constexpr double kInitialDeviation = 0.1;
// A client with more items uses this many of them.
constexpr size_t kItemsMax = 1024;

void AddNegatives(std::span<const uint32_t> own, const RecoConfig& config, SeededRandom& random, RecoHalf& half) {
  half.num_positives = half.items.size();
  for (int i = 0; i < config.negatives; ++i) {
    const auto item = static_cast<uint32_t>(random.Below(static_cast<uint64_t>(config.num_items)));
    if (!std::binary_search(own.begin(), own.end(), item)) half.items.push_back(item);
  }
}

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

v1::Tensor Bytes(v1::DType dtype, std::vector<int64_t> shape, const void* data, size_t size) {
  v1::Tensor tensor;
  tensor.set_dtype(dtype);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensor.set_data(data, size);
  return tensor;
}

}  // namespace

RecoDraw DrawReco(std::span<const uint32_t> items, int client, const RecoConfig& config) {
  SeededRandom random(config.seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(client));
  std::vector<uint32_t> shuffled(items.begin(), items.end());
  for (size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random.Below(i)]);
  shuffled.resize(std::min(shuffled.size(), kItemsMax));
  const size_t num_support = (shuffled.size() + 1) / 2;
  RecoDraw draw;
  draw.support.items.assign(shuffled.begin(), shuffled.begin() + static_cast<ptrdiff_t>(num_support));
  draw.query.items.assign(shuffled.begin() + static_cast<ptrdiff_t>(num_support), shuffled.end());
  AddNegatives(items, config, random, draw.support);
  AddNegatives(items, config, random, draw.query);
  draw.rows = draw.support.items;
  draw.rows.insert(draw.rows.end(), draw.query.items.begin(), draw.query.items.end());
  draw.rows = SortedUnique(std::move(draw.rows));
  return draw;
}

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
  v1::OutputValue& output = *contribution.add_outputs();
  output.set_name(kRecoRowsOutput);
  v1::SparseTensor& rows = *output.mutable_sparse();
  rows.add_dense_shape(config.num_items);
  rows.add_dense_shape(config.row_width());
  const auto num_rows = static_cast<int64_t>(update.rows.size());
  *rows.mutable_indices() = Bytes(v1::INT64, {num_rows}, update.rows.data(), update.rows.size() * sizeof(int64_t));
  *rows.mutable_values() = Bytes(v1::FLOAT32, {num_rows, config.row_width()}, update.gradients.data(),
                                 update.gradients.size() * sizeof(float));
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
