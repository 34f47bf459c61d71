// WorkerAges: how many workers called last in which minute. So it is known at any moment how many have called within
// the last few minutes, although nobody looks at the others, of whom there may be 200,000.
//
//   ages.Move(WorkerAges::kNone, WorkerAges::MinuteOf(now));     // One called for the first time,
//   ages.Move(before, WorkerAges::MinuteOf(now));                // called again,
//   ages.Move(before, WorkerAges::kNone);                        // and is forgotten.
//   const int64_t num_live = ages.NumSince(WorkerAges::MinuteOf(now) - 2, WorkerAges::MinuteOf(now));
//
// A worker is forgotten within kMinutes - 1 minutes of its last call (WorkerRegistry): the places are used in turn.
// Move is the core's; what reads is thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "base/counter.h"

namespace sheaf {

class WorkerAges {
 public:
  static constexpr int64_t kMinutes = 32;
  static constexpr int64_t kNone = -1;

  static int64_t MinuteOf(absl::Time time) { return absl::ToUnixSeconds(time) / 60; }

  void Move(int64_t from, int64_t to) {
    if (from == to) return;
    if (from != kNone) At(from).Add(-1);
    if (to != kNone) At(to).Add(1);
    total_.Add((to != kNone) - (from != kNone));
  }

  int64_t total() const { return total_.value(); }
  // Of those, who called last in the minutes from `first` to `last`.
  int64_t NumSince(int64_t first, int64_t last) const {
    int64_t num = 0;
    for (int64_t minute = std::max(first, last - kMinutes + 1); minute <= last; ++minute) {
      num += places_[static_cast<size_t>(minute % kMinutes)].value();
    }
    return num;
  }

 private:
  Gauge& At(int64_t minute) { return places_[static_cast<size_t>(minute % kMinutes)]; }

  std::array<Gauge, kMinutes> places_;
  Gauge total_;
};

}  // namespace sheaf
