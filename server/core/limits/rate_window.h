// RateWindow: how often something happened over the last 30 seconds.
//
//   window.Add(now);
//   double per_second = window.Rate(now);
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/time/time.h"

namespace sheaf {

class RateWindow {
 public:
  void Add(absl::Time now, int64_t count = 1) {
    const int64_t second = absl::ToUnixSeconds(now);
    Slot& slot = slots_[static_cast<size_t>(second % kSeconds)];
    if (slot.second != second) slot = {.second = second};
    slot.count += count;
  }
  // Events per second.
  double Rate(absl::Time now) const {
    const int64_t second = absl::ToUnixSeconds(now);
    int64_t sum = 0;
    for (const Slot& slot : slots_) {
      if (second - slot.second < kSeconds) sum += slot.count;
    }
    return static_cast<double>(sum) / kSeconds;
  }

 private:
  static constexpr int64_t kSeconds = 30;
  struct Slot {
    int64_t second = INT64_MIN / 2;
    int64_t count = 0;
  };
  std::array<Slot, kSeconds> slots_;
};

}  // namespace sheaf
