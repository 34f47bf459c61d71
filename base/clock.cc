#include "base/clock.h"

#include <chrono>

#include "absl/time/clock.h"

namespace sheaf {
namespace {

int64_t MonotonicNanos() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

SystemClock::SystemClock() : start_wall_(absl::Now()), start_monotonic_nanos_(MonotonicNanos()) {}

absl::Time SystemClock::Now() const {
  return start_wall_ + absl::Nanoseconds(MonotonicNanos() - start_monotonic_nanos_);
}

}  // namespace sheaf
