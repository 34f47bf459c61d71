// Backoff: how long to leave a server alone that did not answer. Full jitter: uniform between nothing and a bound that
// doubles with every failure, so that a thousand workers do not come back in one instant. Not thread-safe.
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "base/random.h"
#include "base/retry_hint.h"

namespace sheaf {

class Backoff {
 public:
  static constexpr absl::Duration kFirst = absl::Milliseconds(100);
  static constexpr absl::Duration kMax = absl::Seconds(10);

  // The pause after one more failure, of which `status` tells; no shorter than that asks for.
  absl::Duration Next(const absl::Status& status, Random& random) {
    absl::Duration bound = std::min(kMax, kFirst * (int64_t{1} << std::min(failures_, 20)));
    ++failures_;
    return PauseAfter(status, bound, random);
  }
  void Reset() { failures_ = 0; }
  int failures() const { return failures_; }

 private:
  int failures_ = 0;
};

}  // namespace sheaf
