// NoWaiter: whoever waits goes on at once.
#pragma once

#include "sdk/cpp/computation/waiter.h"

namespace sheaf {

class NoWaiter final : public Waiter {
 public:
  void Wait(absl::Duration) override {}
};

}  // namespace sheaf
