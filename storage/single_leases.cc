#include "storage/single_leases.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

namespace sheaf {

void SingleLeases::Insert(const std::string& requirement, absl::Time begin, int32_t index) {
  all_.emplace(begin, index);
  by_requirement_[requirement].emplace(begin, index);
}

void SingleLeases::Erase(const std::string& requirement, absl::Time begin, int32_t index) {
  all_.erase({begin, index});
  const auto found = by_requirement_.find(requirement);
  if (found == by_requirement_.end()) return;
  found->second.erase({begin, index});
  if (found->second.empty()) by_requirement_.erase(found);
}

absl::Time SingleLeases::FirstAfter(absl::Time after) const {
  const auto first = all_.upper_bound({after, std::numeric_limits<int32_t>::max()});
  return first == all_.end() ? absl::InfiniteFuture() : first->first;
}

std::vector<int32_t> SingleLeases::LongestHeld(const std::vector<std::string>& requirements, absl::Time begun_by,
                                               int limit) const {
  // Merges the lists of these requirements: of each its next, the longest held of all at the front.
  using Next = std::tuple<absl::Time, int32_t, const ByBegin*>;
  std::vector<Next> heap;
  const auto push = [&](const ByBegin& list, ByBegin::const_iterator next) {
    if (next == list.end() || next->first > begun_by) return;
    heap.emplace_back(next->first, next->second, &list);
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  const auto add = [&](const std::string& requirement) {
    const auto found = by_requirement_.find(requirement);
    if (found != by_requirement_.end()) push(found->second, found->second.begin());
  };
  add("");
  for (const std::string& requirement : requirements) add(requirement);
  std::vector<int32_t> held;
  while (!heap.empty() && static_cast<int>(held.size()) < limit) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto [begin, index, list] = heap.back();
    heap.pop_back();
    // A requirement may be named twice.
    if (held.empty() || held.back() != index) held.push_back(index);
    push(*list, list->upper_bound({begin, index}));
  }
  return held;
}

}  // namespace sheaf
