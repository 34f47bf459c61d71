// SingleLeases: the tasks of a round that may be leased again (MayBeLeasedAgain), by when their lease began and by what
// they require.
//
//   SingleLeases leases;
//   leases.Insert(requirement, task.lease_time, task.id.index);
//   const absl::Time first = leases.FirstAfter(absl::InfinitePast());
//   const std::vector<int32_t> held = leases.LongestHeld(fulfilled, first, n);   // Indexes of tasks.
//
// Whoever fulfils little finds what they may take at once, however many tasks are there that they may not. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace sheaf {

class SingleLeases {
 public:
  void Insert(const std::string& requirement, absl::Time begin, int32_t index);
  // If it is there.
  void Erase(const std::string& requirement, absl::Time begin, int32_t index);

  // When the first lease began of those that began after `after`; infinite future if there is none. O(log leases).
  absl::Time FirstAfter(absl::Time after) const;
  // Of the tasks that require nothing, or one of `requirements`, and whose lease began by then: at most `limit`, the
  // longest held first. O((requirements + limit) log leases).
  std::vector<int32_t> LongestHeld(const std::vector<std::string>& requirements, absl::Time begun_by, int limit) const;

 private:
  using ByBegin = std::set<std::pair<absl::Time, int32_t>>;

  ByBegin all_;
  std::map<std::string, ByBegin> by_requirement_;
};

}  // namespace sheaf
