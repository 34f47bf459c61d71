// WaitUntil: for tests of what happens in other threads and processes.
//
//   WaitUntil("the worker holds a task", absl::Seconds(10), [&] { return !Leased().empty(); });
#pragma once

#include <poll.h>

#include <catch2/catch.hpp>
#include <string>

#include "absl/time/time.h"
#include "base/clock.h"

namespace sheaf {

// Looks again and again until `condition` holds; fails the test, naming `what`, if it does not within `timeout`.
template <typename Condition>
void WaitUntil(const std::string& what, absl::Duration timeout, Condition condition) {
  const SystemClock clock;
  const absl::Time give_up = clock.Now() + timeout;
  while (!condition()) {
    if (clock.Now() > give_up) FAIL("not within " << absl::FormatDuration(timeout) << ": " << what);
    ::poll(nullptr, 0, 3);
  }
}

}  // namespace sheaf
