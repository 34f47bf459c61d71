// WaitingTasks: how many tasks of a round are QUEUED, by requirement and by the time from which they may be leased, so
// that a search for work, and a look at the queue, need not go through the tasks themselves.
//
//   waiting.Add(number, available_time, 1);     // A task became QUEUED; -1: it is not any more.
//   if (waiting.Count(number) > 0) ...          // Some task with requirement `number` is there, perhaps delayed.
//
// Its memory is a number for each requirement, and an entry for each different time: all tasks of a new round have one.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "base/check.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

class WaitingTasks {
 public:
  explicit WaitingTasks(size_t num_requirements) : by_requirement_(num_requirements) {}

  // `by` tasks more, or fewer if it is negative.
  void Add(size_t requirement, absl::Time available_time, int64_t by) {
    SHEAF_CHECK(requirement < by_requirement_.size());
    by_requirement_[requirement] += by;
    const auto at = by_time_.try_emplace(ToSql(available_time), 0).first;
    at->second += by;
    SHEAF_CHECK(by_requirement_[requirement] >= 0 && at->second >= 0, "fewer than no tasks wait");
    if (at->second == 0) by_time_.erase(at);
  }

  int64_t Count(size_t requirement) const { return by_requirement_[requirement]; }
  const std::vector<int64_t>& by_requirement() const { return by_requirement_; }
  // Those that may not be leased yet.
  int64_t NumDelayed(absl::Time now) const {
    int64_t num_delayed = 0;
    for (auto it = by_time_.upper_bound(ToSql(now)); it != by_time_.end(); ++it) num_delayed += it->second;
    return num_delayed;
  }
  // The earliest time of those that may be leased at `now`; InfiniteFuture if there is none.
  absl::Time Oldest(absl::Time now) const {
    if (by_time_.empty() || by_time_.begin()->first > ToSql(now)) return absl::InfiniteFuture();
    return FromSql(by_time_.begin()->first);
  }

 private:
  std::vector<int64_t> by_requirement_;
  // By the time as the database keeps it: a task that is read again has no other.
  std::map<int64_t, int64_t> by_time_;
};

}  // namespace sheaf
