// PopulationSlots: the populations that figures are kept of by name. The first so many that come have a slot each, for
// as long as the process lives; all others share the last one, which is called "other". So however many populations
// strangers make up, there are no more figures than that, and a counter never moves from one slot to another.
//
//   const size_t slot = slots.Of("default");          // The core's.
//   figures.populations[slot].leases_granted.Add();
//   const std::vector<std::string> names = slots.Names();          // Any thread's: by slot, but for the last.
//
// Of is the core's; Names is thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace sheaf {

class PopulationSlots {
 public:
  // A population costs some 60 lines of /metrics.
  static constexpr size_t kNamedMax = 32;
  static constexpr size_t kOthers = kNamedMax;
  static constexpr size_t kNum = kNamedMax + 1;
  static constexpr char kOther[] = "other";

  size_t Of(const std::string& population) EXCLUDES(mutex_) {
    if (population == kOther) return kOthers;
    if (const auto found = slots_.find(population); found != slots_.end()) return found->second;
    if (slots_.size() == kNamedMax) return kOthers;
    const size_t slot = slots_.size();
    slots_.emplace(population, slot);
    MutexLock lock(mutex_);
    names_.push_back(population);
    return slot;
  }

  // Those that have a slot of their own, in the order of the slots.
  std::vector<std::string> Names() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return names_;
  }

 private:
  std::map<std::string, size_t> slots_;
  mutable Mutex mutex_;
  std::vector<std::string> names_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
