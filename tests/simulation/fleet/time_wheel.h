// TimeWheel: what happens when, for millions of events: each is a number, filed under its tenth of a second.
//
//   TimeWheel wheel;
//   wheel.At(absl::Seconds(3), 17);
//   while (wheel.now() < absl::Hours(24)) {
//     for (uint32_t event : wheel.Next()) Happen(event);     // Of one tenth of a second, in the order they were filed.
//   }
//
// Simpler than Agenda, and a hundred times as fast. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace sheaf::simulation {

class TimeWheel {
 public:
  // Not before the next tenth of a second. Returns which one it is, as tick() then has it.
  int64_t At(absl::Duration time, uint32_t event) {
    const int64_t tick = std::max(time / kTick + (time % kTick > absl::ZeroDuration() ? 1 : 0), tick_ + 1);
    if (tick < tick_ + kTicks) {
      ticks_[static_cast<size_t>(tick % kTicks)].push_back(event);
    } else {
      later_[tick].push_back(event);
    }
    return tick;
  }

  // What happens at the next tenth of a second, which is now.
  std::vector<uint32_t> Next() {
    ++tick_;
    std::vector<uint32_t> events = std::exchange(ticks_[static_cast<size_t>(tick_ % kTicks)], {});
    if (!later_.empty() && later_.begin()->first == tick_) {
      events.insert(events.end(), later_.begin()->second.begin(), later_.begin()->second.end());
      later_.erase(later_.begin());
    }
    return events;
  }
  int64_t tick() const { return tick_; }
  absl::Duration now() const { return tick_ * kTick; }

 private:
  static constexpr absl::Duration kTick = absl::Milliseconds(100);
  // Five hours, in which nearly all happens.
  static constexpr int64_t kTicks = 180'000;

  int64_t tick_ = 0;
  std::vector<std::vector<uint32_t>> ticks_ = std::vector<std::vector<uint32_t>>(kTicks);
  std::map<int64_t, std::vector<uint32_t>> later_;
};

}  // namespace sheaf::simulation
