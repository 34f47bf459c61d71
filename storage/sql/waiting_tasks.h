// WaitingTasks: the QUEUED tasks of a live round, in memory: handing out work, and looking at the queue, asks no
// database.
//
//   waiting.AddNew(number, index);                                       // Nobody has had it yet.
//   waiting.AddBack(number, index, {.available_time = now + backoff});   // It was leased, and is QUEUED again.
//   for (const WaitingTasks::Found& task : waiting.Find(numbers, now, 3)) waiting.Remove(task.requirement, task.index);
//
// Requirements are numbers here, as in the database. A task that nobody has had takes 5 bytes, one that came back some
// 300; of all tasks that become available at the same time, the time takes one entry. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/check.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

class WaitingTasks {
 public:
  // Nobody leases a new task before `create_time`, the round's.
  WaitingTasks(size_t num_requirements, absl::Time create_time)
      : create_time_(ToSql(create_time)), shelves_(num_requirements) {}

  // What has become of a task so far.
  struct Past {
    absl::Time available_time;
    int32_t num_attempts = 0;
    int32_t num_failed = 0;
    int32_t num_lost = 0;
    std::string last_error;
  };

  // Of one requirement, in ascending order of their indexes.
  void AddNew(size_t requirement, int32_t index) {
    Shelf& shelf = At(requirement);
    SHEAF_CHECK(shelf.fresh.empty() || shelf.fresh.back() < index, "tasks are new in the order of their indexes");
    shelf.fresh.push_back(index);
    Count(shelf, create_time_, 1);
  }
  void AddBack(size_t requirement, int32_t index, Past past) {
    Shelf& shelf = At(requirement);
    const int64_t available_time = ToSql(past.available_time);
    const bool is_added = shelf.back.emplace(index, std::move(past)).second;
    SHEAF_CHECK(is_added, "task {} waits already", index);
    Count(shelf, available_time, 1);
  }
  void Remove(size_t requirement, int32_t index) {
    Shelf& shelf = At(requirement);
    if (const auto back = shelf.back.find(index); back != shelf.back.end()) {
      Count(shelf, ToSql(back->second.available_time), -1);
      shelf.back.erase(back);
      return;
    }
    const auto fresh = std::lower_bound(shelf.first_fresh(), shelf.fresh.cend(), index);
    SHEAF_CHECK(fresh != shelf.fresh.cend() && *fresh == index, "task {} does not wait", index);
    Count(shelf, create_time_, -1);
    if (fresh != shelf.first_fresh()) {
      shelf.fresh.erase(fresh);
    } else if (++shelf.num_taken == shelf.fresh.size()) {
      shelf.fresh = {};
      shelf.num_taken = 0;
    }
  }

  struct Found {
    size_t requirement = 0;
    int32_t index = 0;
    Past past;
  };
  // Of these requirements the tasks that may be leased, lowest index first; at most `wanted`.
  std::vector<Found> Find(std::span<const size_t> requirements, absl::Time now, size_t wanted) const {
    std::vector<Found> found;
    const auto by_index = [](const Found& a, const Found& b) { return a.index < b.index; };
    for (const size_t requirement : requirements) {
      FindOn(requirement, ToSql(now), wanted, found);
      // A worker may fulfil thousands: those behind the first `wanted` go now and then.
      if (found.size() <= 2 * wanted) continue;
      std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(wanted), found.end(), by_index);
      found.resize(wanted);
    }
    // Those of one requirement are in order.
    if (requirements.size() > 1) std::sort(found.begin(), found.end(), by_index);
    if (found.size() > wanted) found.resize(wanted);
    return found;
  }

  // Also of those that may not be leased yet.
  int64_t Count(size_t requirement) const { return shelves_[requirement].num_waiting; }
  std::vector<int64_t> CountAll() const {
    std::vector<int64_t> counts;
    counts.reserve(shelves_.size());
    for (const Shelf& shelf : shelves_) counts.push_back(shelf.num_waiting);
    return counts;
  }
  // Those that may not be leased yet.
  int64_t NumDelayed(absl::Time now) const {
    int64_t num_delayed = 0;
    for (auto it = by_time_.upper_bound(ToSql(now)); it != by_time_.end(); ++it) num_delayed += it->second;
    return num_delayed;
  }
  // The earliest time of all of them; InfiniteFuture if there is none.
  absl::Time First() const { return by_time_.empty() ? absl::InfiniteFuture() : FromSql(by_time_.begin()->first); }
  // The earliest time of those that may be leased at `now`; InfiniteFuture if there is none.
  absl::Time Oldest(absl::Time now) const {
    if (by_time_.empty() || by_time_.begin()->first > ToSql(now)) return absl::InfiniteFuture();
    return FromSql(by_time_.begin()->first);
  }

 private:
  // Of one requirement.
  struct Shelf {
    // In ascending order; the first `num_taken` wait no more.
    std::vector<int32_t> fresh;
    size_t num_taken = 0;
    std::map<int32_t, Past> back;
    int64_t num_waiting = 0;

    std::vector<int32_t>::const_iterator first_fresh() const {
      return fresh.begin() + static_cast<std::ptrdiff_t>(num_taken);
    }
  };

  Shelf& At(size_t requirement) {
    SHEAF_CHECK(requirement < shelves_.size());
    return shelves_[requirement];
  }

  void Count(Shelf& shelf, int64_t available_time, int64_t by) {
    shelf.num_waiting += by;
    const auto at = by_time_.try_emplace(available_time, 0).first;
    at->second += by;
    SHEAF_CHECK(shelf.num_waiting >= 0 && at->second >= 0, "fewer than no tasks wait");
    if (at->second == 0) by_time_.erase(at);
  }

  // Appends at most `wanted`.
  void FindOn(size_t requirement, int64_t now, size_t wanted, std::vector<Found>& found) const {
    const Shelf& shelf = shelves_[requirement];
    auto fresh = create_time_ <= now ? shelf.first_fresh() : shelf.fresh.end();
    auto back = shelf.back.begin();
    for (const size_t end = found.size() + wanted; found.size() < end;) {
      while (back != shelf.back.end() && ToSql(back->second.available_time) > now) ++back;
      const bool has_fresh = fresh != shelf.fresh.end();
      const bool has_back = back != shelf.back.end();
      if (!has_fresh && !has_back) return;
      if (has_back && (!has_fresh || back->first < *fresh)) {
        found.push_back({requirement, back->first, back->second});
        ++back;
      } else {
        found.push_back({requirement, *fresh, {.available_time = FromSql(create_time_)}});
        ++fresh;
      }
    }
  }

  int64_t create_time_;
  std::vector<Shelf> shelves_;
  // By the time as the database keeps it: a task that is read again has no other.
  std::map<int64_t, int64_t> by_time_;
};

}  // namespace sheaf
