#include "server/stored/run_times.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sheaf {
namespace {

constexpr absl::Duration kShortest = absl::Milliseconds(1);
constexpr absl::Duration kLongest = absl::Hours(24 * 366);
constexpr double kGrowth = 1.1;

}  // namespace

RunTimes::RunTimes(Buckets buckets) : buckets_(std::move(buckets)) {
  // What is stored cannot be trusted to make sense, only to be what it is.
  std::erase_if(buckets_, [](const auto& bucket) { return bucket.second <= 0; });
  for (const auto& [bucket, count] : buckets_) count_ += count;
}

void RunTimes::Add(absl::Duration duration) {
  const double times = absl::FDivDuration(std::clamp(duration, kShortest, kLongest), kShortest);
  ++buckets_[static_cast<int32_t>(std::ceil(std::log(times) / std::log(kGrowth)))];
  ++count_;
}

absl::Duration RunTimes::Quantile(double quantile) const {
  if (count_ == 0) return absl::ZeroDuration();
  const auto num_within =
      std::clamp<int64_t>(static_cast<int64_t>(std::ceil(quantile * static_cast<double>(count_))), 1, count_);
  int64_t num_seen = 0;
  for (const auto& [bucket, count] : buckets_) {
    num_seen += count;
    if (num_seen >= num_within) return std::min(kShortest * std::pow(kGrowth, bucket), kLongest);
  }
  return kLongest;
}

}  // namespace sheaf
