#include "server/core/rounds/requirement_index.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "server/core/rounds/requirement_match.h"

namespace sheaf {
namespace {

uint64_t HashOf(std::string_view key, std::string_view value) {
  return std::hash<std::string_view>()(key) * 0x9e3779b97f4a7c15u + std::hash<std::string_view>()(value);
}

// Calls `use` with the hash of each label of a requirement.
template <typename Use>
void ForEachLabel(std::string_view requirement, Use use) {
  while (!requirement.empty()) {
    const std::string_view label = requirement.substr(0, requirement.find(','));
    requirement.remove_prefix(std::min(requirement.size(), label.size() + 1));
    const size_t equals = std::min(label.find('='), label.size());
    use(HashOf(label.substr(0, equals), label.substr(std::min(equals + 1, label.size()))));
  }
}

using Filed = std::vector<std::pair<uint64_t, int32_t>>;

std::pair<Filed::const_iterator, Filed::const_iterator> FiledUnder(const Filed& filed, uint64_t hash) {
  const auto begin = std::lower_bound(filed.begin(), filed.end(), std::pair(hash, int32_t{0}));
  const auto end = std::partition_point(begin, filed.end(), [&](const auto& entry) { return entry.first == hash; });
  return {begin, end};
}

}  // namespace

RequirementIndex::RequirementIndex(std::vector<std::string> texts) : texts_(std::move(texts)) {
  // How many requirements have each label.
  std::vector<uint64_t> labels;
  for (const std::string& text : texts_) ForEachLabel(text, [&](uint64_t hash) { labels.push_back(hash); });
  std::sort(labels.begin(), labels.end());
  const auto count = [&](uint64_t hash) {
    const auto [begin, end] = std::equal_range(labels.begin(), labels.end(), hash);
    return end - begin;
  };
  filed_.reserve(texts_.size());
  for (size_t number = 0; number < texts_.size(); ++number) {
    uint64_t rarest = 0;
    std::ptrdiff_t fewest = 0;
    ForEachLabel(texts_[number], [&](uint64_t hash) {
      const std::ptrdiff_t has = count(hash);
      if (fewest != 0 && has >= fewest) return;
      rarest = hash;
      fewest = has;
    });
    // One without labels is everybody's, and needs no look.
    if (fewest != 0) filed_.emplace_back(rarest, static_cast<int32_t>(number));
  }
  std::sort(filed_.begin(), filed_.end());
}

RequirementIndex::Match RequirementIndex::FulfilledBy(const Labels& labels, const Look& look) const {
  Match match;
  if (!texts_.empty() && texts_.front().empty()) match.numbers.push_back(0);
  if (filed_.empty()) return match;
  // By place, so that the order of the labels in memory does not show.
  std::vector<std::pair<Filed::const_iterator, Filed::const_iterator>> places;
  for (const auto& [key, value] : labels) {
    const auto place = FiledUnder(filed_, HashOf(key, value));
    if (place.first != place.second) places.push_back(place);
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  int64_t total = 0;
  for (const auto& [begin, end] : places) total += end - begin;
  match.is_complete = total <= look.candidates_max;
  match.num_candidates = std::min(total, look.candidates_max);
  if (match.num_candidates == 0) return match;
  // As many candidates from `first` on, in a circle through all places.
  int64_t skipped = match.is_complete ? 0 : static_cast<int64_t>(look.first % static_cast<uint64_t>(total));
  size_t place = 0;
  while (skipped >= places[place].second - places[place].first) {
    skipped -= places[place].second - places[place].first;
    ++place;
  }
  auto it = places[place].first + skipped;
  for (int64_t i = 0; i < match.num_candidates; ++i, ++it) {
    if (it == places[place].second) {
      place = (place + 1) % places.size();
      it = places[place].first;
    }
    if (Fulfils(labels, texts_[static_cast<size_t>(it->second)])) match.numbers.push_back(it->second);
  }
  std::sort(match.numbers.begin(), match.numbers.end());
  return match;
}

}  // namespace sheaf
