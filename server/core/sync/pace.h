// Pace: when a worker calls again, where its answer brings no leases. It picks one instant at random between two that
// the answer names, so that those who were answered together do not come back together. Where there are many workers,
// these are only the earliest times: see PaceSteering.
//
//   SetPace(Pace::kSoon, response);
//   SetPaceRange({.min = absl::Minutes(12), .max = absl::Minutes(13)}, response);
#pragma once

#include "absl/time/time.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

enum class Pace {
  // Its results were taken, and it may wait: its next call is parked.
  kAtOnce,
  // It has waited, and comes back at a time of its own.
  kSoon,
  // It may not wait, and takes its time; more of it if there are many.
  kLater,
  // Where everybody waits who may, the others come back now and then, or later if there are many; so does a drained
  // worker that wants tasks.
  kNowAndThen,
  // The server stops, and is given this long to come back.
  kAfterRestart,
  // The server stops, and another one that waits has the store next.
  kAfterHandover,
};

struct PaceRange {
  absl::Duration min;
  absl::Duration max;
};
PaceRange RangeOf(Pace pace);

// Leaves an answer with leases as it is: whoever has some calls when there is a result. But for kNowAndThen.
void SetPace(Pace pace, v1::SyncResponse& response);
void SetPaceRange(const PaceRange& range, v1::SyncResponse& response);

}  // namespace sheaf
