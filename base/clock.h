// Clock: where time comes from. Only a binary's main owns a SystemClock; everything
// else is told `now`, or holds a Clock& that a test turns by hand.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sheaf {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's clock, kept from running backwards: it starts at the wall time and
// advances with the time since the machine was booted, so that a stepped wall clock
// neither expires nor extends a lease or token, and time in suspend counts. Thread-safe.
class SystemClock final : public Clock {
 public:
  SystemClock();
  absl::Time Now() const override;

 private:
  absl::Time start_wall_;
  int64_t start_boot_nanos_;
};

// Stands still until told. Not thread-safe.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(absl::Time start = absl::FromUnixSeconds(1'000'000'000)) : now_(start) {}
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration by) { now_ += by; }
  void Set(absl::Time now) { now_ = now; }

 private:
  absl::Time now_;
};

}  // namespace sheaf
