#include "server/core/sync/pace.h"

#include "absl/time/time.h"
#include "proto/time.h"

namespace sheaf {
namespace {

struct Range {
  absl::Duration min;
  absl::Duration max;
};

Range RangeOf(Pace pace) {
  const auto about = [](absl::Duration longest) { return Range{.min = longest / 2, .max = longest}; };
  switch (pace) {
    case Pace::kAtOnce:
      break;
    case Pace::kSoon:
      return {.min = absl::ZeroDuration(), .max = absl::Milliseconds(50)};
    case Pace::kLater:
      return about(absl::Seconds(1));
    case Pace::kNowAndThen:
      return about(absl::Seconds(10));
    case Pace::kAfterRestart:
      return about(absl::Seconds(2));
  }
  return {.min = absl::ZeroDuration(), .max = absl::ZeroDuration()};
}

}  // namespace

void SetPace(Pace pace, v1::SyncResponse& response) {
  if (pace != Pace::kNowAndThen && !response.leases().empty()) return;
  const Range range = RangeOf(pace);
  *response.mutable_next_min() = ToProto(range.min);
  *response.mutable_next_max() = ToProto(range.max);
}

}  // namespace sheaf
