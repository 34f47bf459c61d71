#include "base/clock.h"

#include <ctime>

#include "absl/time/clock.h"

namespace sheaf {
namespace {

// CLOCK_MONOTONIC stands still while the machine is suspended: what expires would live longer by the time slept.
int64_t BootNanos() {
  timespec time = {};
  ::clock_gettime(CLOCK_BOOTTIME, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

SystemClock::SystemClock() : start_wall_(absl::Now()), start_boot_nanos_(BootNanos()) {}

absl::Time SystemClock::Now() const { return start_wall_ + absl::Nanoseconds(BootNanos() - start_boot_nanos_); }

}  // namespace sheaf
