// PopulationShare: how much of something that all populations share each of them has, and how much one may have.
//
//   const int64_t max = live_tasks.Max("a", limits.live_tasks_max, limits.population_percent_max);
//   if (live_tasks.Of("a") + 100 > max) return absl::ResourceExhaustedError("population a has its share");
//   live_tasks.Add("a", 100);
//   live_tasks.Add("a", -100);
//
// A population may have so many percent of what the others leave. Alone it has nearly all; and whoever comes when it
// has, and after whoever came then, still finds some: nobody can take what another has or will need. This is what
// switches do with the memory of their queues (Choudhury and Hahne, Dynamic queue length thresholds, 1998); fixed parts
// would waste what nobody uses, and who shares is not known in advance. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "base/check.h"

namespace sheaf {

class PopulationShare {
 public:
  // `by` more, or less if it is negative.
  void Add(const std::string& population, int64_t by) {
    total_ += by;
    const auto used = used_.try_emplace(population, 0).first;
    used->second += by;
    SHEAF_CHECK(used->second >= 0, "population {} has less than nothing", population);
    if (used->second == 0) used_.erase(used);
  }

  int64_t total() const { return total_; }
  // Populations that have some.
  int64_t size() const { return static_cast<int64_t>(used_.size()); }
  int64_t Of(const std::string& population) const {
    const auto used = used_.find(population);
    return used == used_.end() ? 0 : used->second;
  }
  // The most that the population may have while the others have what they have, of `max` for all.
  int64_t Max(const std::string& population, int64_t max, int64_t percent) const {
    return Max(total_ - Of(population), max, percent);
  }
  // The same where somebody else counts: the others have `others`.
  static int64_t Max(int64_t others, int64_t max, int64_t percent) {
    const int64_t left = std::max<int64_t>(max - others, 0);
    // A reserve of less than one is none.
    return left - left / 100 * (100 - percent) - left % 100 * (100 - percent) / 100;
  }

 private:
  int64_t total_ = 0;
  // None is 0.
  std::map<std::string, int64_t> used_;
};

}  // namespace sheaf
