#include "workloads/reco/recall.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "workloads/reco/draw.h"
#include "workloads/reco/reconstruction.h"

namespace sheaf {
namespace {

constexpr size_t kTop = 20;
constexpr size_t kClientsMax = 1000;

// Calls `visit` with what each held-out client draws. Always the same draws: recalls of different rounds compare.
template <typename Visit>
void ForEachHeldOut(const RecoDataset& dataset, RecoConfig config, Visit visit) {
  config.seed = 0;
  config.num_items = dataset.num_items();
  size_t num_left = kClientsMax;
  for (int client = 0; client < dataset.num_clients() && num_left > 0; ++client) {
    if (!dataset.is_held_out(client)) continue;
    visit(DrawReco(dataset.items(client), client, config));
    --num_left;
  }
}

class RecallCounter {
 public:
  explicit RecallCounter(int num_items) : ranking_(static_cast<size_t>(num_items)) {}

  // `scores` loses those of the support items.
  void Count(const RecoDraw& draw, std::span<float> scores) {
    for (size_t i = 0; i < draw.support.num_positives; ++i) {
      scores[draw.support.items[i]] = -std::numeric_limits<float>::infinity();
    }
    std::iota(ranking_.begin(), ranking_.end(), 0);
    const auto end = ranking_.begin() + static_cast<ptrdiff_t>(std::min(kTop, ranking_.size()));
    // Of equal scores the lower item wins.
    std::nth_element(ranking_.begin(), end, ranking_.end(),
                     [&](int64_t a, int64_t b) { return scores[a] > scores[b] || (scores[a] == scores[b] && a < b); });
    for (size_t i = 0; i < draw.query.num_positives; ++i)
      hits_ += std::count(ranking_.begin(), end, draw.query.items[i]);
    total_ += static_cast<int64_t>(draw.query.num_positives);
  }
  double recall() const { return total_ == 0 ? 0.0 : static_cast<double>(hits_) / static_cast<double>(total_); }

 private:
  std::vector<int64_t> ranking_;
  int64_t hits_ = 0;
  int64_t total_ = 0;
};

// Column by column of the model, so that scoring all items is a loop over consecutive numbers.
class Columns {
 public:
  explicit Columns(const RecoModel& model) : num_items_(static_cast<size_t>(model.num_items)) {
    const auto width = static_cast<size_t>(model.width);
    values_.resize(model.weights.size());
    for (size_t item = 0; item < num_items_; ++item) {
      for (size_t d = 0; d < width; ++d) values_[d * num_items_ + item] = model.weights[item * width + d];
    }
  }
  void Score(std::span<const float> user, std::span<float> scores) const {
    std::copy_n(values_.data() + user.size() * num_items_, num_items_, scores.data());
    for (size_t d = 0; d < user.size(); ++d) {
      const float* column = values_.data() + d * num_items_;
      const float factor = user[d];
      for (size_t item = 0; item < num_items_; ++item) scores[item] += factor * column[item];
    }
  }

 private:
  const size_t num_items_;
  std::vector<float> values_;
};

}  // namespace

double RecoRecallAt20(const RecoModel& model, const RecoDataset& dataset, const RecoConfig& config) {
  const Columns columns(model);
  RecallCounter counter(model.num_items);
  std::vector<float> scores(static_cast<size_t>(model.num_items));
  ForEachHeldOut(dataset, config, [&](const RecoDraw& draw) {
    std::vector<size_t> offsets;
    for (int64_t item : draw.support.items) offsets.push_back(static_cast<size_t>(item * model.width));
    columns.Score(RebuildRecoVector(draw.support, offsets, model.weights, config), scores);
    counter.Count(draw, scores);
  });
  return counter.recall();
}

double RecoPopularityRecallAt20(const RecoDataset& dataset, const RecoConfig& config) {
  std::vector<float> counts(static_cast<size_t>(dataset.num_items()));
  for (int client : dataset.TrainingClients()) {
    for (uint32_t item : dataset.items(client)) counts[item] += 1;
  }
  RecallCounter counter(dataset.num_items());
  ForEachHeldOut(dataset, config, [&](const RecoDraw& draw) {
    std::vector<float> scores = counts;
    counter.Count(draw, scores);
  });
  return counter.recall();
}

}  // namespace sheaf
