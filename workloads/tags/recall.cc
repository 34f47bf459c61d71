#include "workloads/tags/recall.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace sheaf {
namespace {

constexpr int kTop = 5;

// The labels with the highest scores, best first; of equal scores the lower label wins.
std::array<int, kTop> TopLabels(std::span<const float> scores) {
  std::array<int, kTop> top;
  top.fill(-1);
  for (int label = 0; label < static_cast<int>(scores.size()); ++label) {
    if (top.back() >= 0 && !(scores[label] > scores[top.back()])) continue;
    int place = kTop - 1;
    for (; place > 0 && (top[place - 1] < 0 || scores[label] > scores[top[place - 1]]); --place)
      top[place] = top[place - 1];
    top[place] = label;
  }
  return top;
}

// Calls `visit` with every example of the clients that are held out, or of those that are not.
template <typename Visit>
void ForEachExample(const TagsDataset& dataset, bool held_out, Visit visit) {
  for (int client = 0; client < dataset.num_clients(); ++client) {
    if (dataset.is_held_out(client) != held_out) continue;
    const auto [begin, end] = dataset.ClientExamples(client);
    for (int i = begin; i < end; ++i) visit(dataset.example(i));
  }
}

class RecallCounter {
 public:
  void Count(std::span<const uint16_t> labels, const std::array<int, kTop>& top) {
    for (uint16_t label : labels) hits_ += std::count(top.begin(), top.end(), label);
    total_ += static_cast<int64_t>(labels.size());
  }
  double recall() const { return total_ == 0 ? 0.0 : static_cast<double>(hits_) / static_cast<double>(total_); }

 private:
  int64_t hits_ = 0;
  int64_t total_ = 0;
};

}  // namespace

double TagsRecallAt5(const TagsModel& model, const TagsDataset& dataset) {
  RecallCounter counter;
  std::vector<float> scores(model.num_labels);
  ForEachExample(dataset, /*held_out=*/true, [&](const TagsDataset::Example& example) {
    std::copy(model.bias.begin(), model.bias.end(), scores.begin());
    for (uint32_t feature : example.features) {
      const float* row = model.row(feature).data();
      for (size_t i = 0; i < scores.size(); ++i) scores[i] += row[i];
    }
    counter.Count(example.labels, TopLabels(scores));
  });
  return counter.recall();
}

double TagsPopularityRecallAt5(const TagsDataset& dataset) {
  std::vector<float> counts(dataset.num_labels());
  ForEachExample(dataset, /*held_out=*/false, [&](const TagsDataset::Example& example) {
    for (uint16_t label : example.labels) counts[label] += 1;
  });
  const std::array<int, kTop> top = TopLabels(counts);
  RecallCounter counter;
  ForEachExample(dataset, /*held_out=*/true,
                 [&](const TagsDataset::Example& example) { counter.Count(example.labels, top); });
  return counter.recall();
}

}  // namespace sheaf
