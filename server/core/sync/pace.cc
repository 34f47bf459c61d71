#include "server/core/sync/pace.h"

#include "proto/time.h"

namespace sheaf {

PaceRange RangeOf(Pace pace) {
  const auto about = [](absl::Duration longest) { return PaceRange{.min = longest / 2, .max = longest}; };
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
    case Pace::kAfterHandover:
      return about(absl::Milliseconds(500));
  }
  return {.min = absl::ZeroDuration(), .max = absl::ZeroDuration()};
}

void SetPace(Pace pace, v1::SyncResponse& response) {
  if (pace != Pace::kNowAndThen && !response.leases().empty()) return;
  SetPaceRange(RangeOf(pace), response);
}

void SetPaceRange(const PaceRange& range, v1::SyncResponse& response) {
  *response.mutable_next_min() = ToProto(range.min);
  *response.mutable_next_max() = ToProto(range.max);
}

}  // namespace sheaf
