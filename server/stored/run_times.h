// RunTimes: how long attempts took, so many of them that only their quantiles matter: counted in buckets, each a tenth
// wider than the one before (as DDSketch does; Masson, Rim and Lee, VLDB 2019).
//
//   RunTimes times;
//   times.Add(absl::Seconds(12));
//   absl::Duration slow = times.Quantile(0.75);   // At most a tenth too long.
//
// Takes no more room than there are buckets, some 260 from a millisecond to a year, however many attempts there were.
#pragma once

#include <cstdint>
#include <map>

#include "absl/time/time.h"

namespace sheaf {

class RunTimes {
 public:
  // Buckets are numbers that stored rounds have (stored.v1.RoundProgress.run_times): they stay what they are.
  using Buckets = std::map<int32_t, int64_t>;

  RunTimes() = default;
  explicit RunTimes(Buckets buckets);

  // O(log buckets).
  void Add(absl::Duration duration);
  int64_t count() const { return count_; }
  // The least duration that so large a part of them did not exceed; ZeroDuration if there is none. O(buckets).
  absl::Duration Quantile(double quantile) const;
  const Buckets& buckets() const { return buckets_; }

 private:
  Buckets buckets_;
  int64_t count_ = 0;
};

}  // namespace sheaf
