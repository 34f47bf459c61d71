// Waiter: how a computation waits, so that in a simulation nobody does. The runtime's sleeps; a test's returns at once.
#pragma once

#include "absl/time/time.h"

namespace sheaf {

class Waiter {
 public:
  virtual ~Waiter() = default;
  // Returns after `duration`. Thread-safe.
  virtual void Wait(absl::Duration duration) = 0;
};

}  // namespace sheaf
