#include "workloads/reco/draw.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace sheaf {
namespace {

// A client with more items uses this many of them.
constexpr size_t kItemsMax = 1024;

void AddNegatives(std::span<const uint32_t> own, const RecoConfig& config, SeededRandom& random, RecoHalf& half) {
  half.num_positives = half.items.size();
  for (int i = 0; i < config.negatives; ++i) {
    const auto item = static_cast<uint32_t>(random.Below(static_cast<uint64_t>(config.num_items)));
    if (!std::binary_search(own.begin(), own.end(), item)) half.items.push_back(item);
  }
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
  std::sort(draw.rows.begin(), draw.rows.end());
  draw.rows.erase(std::unique(draw.rows.begin(), draw.rows.end()), draw.rows.end());
  return draw;
}

}  // namespace sheaf
