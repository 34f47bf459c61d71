// What a worker says of an attempt's time, placed on the server's clock.
//
//   const AttemptTimings timings = PlaceAttempt(result.timings(), {.available = task.available_time,
//                                                                  .leased = task.lease_time,
//                                                                  .received = arrival,
//                                                                  .ended = now});
//
// No clock of a worker need agree with the server's. A worker's times count from when it had the lease, at its own
// clock (T below); the two calls that brought the lease and that took the result bound when that was on the server's
// clock:
//
//   server   leased ---- grant sent ------------------------------ received ---- ended
//                             \                                   /
//   worker                     T=0 [prepare][download][compute] T=handed_in
//
// T=0 is neither before the grant was sent nor later than `received - handed_in`. It is put in the middle, as NTP does,
// which is right if both calls travelled equally long, and wrong by half of their time together at most. A grant that
// was sent again, because its answer was lost, says when (AttemptTimings.grant_time). Whatever a worker says, nothing
// of it lies outside of its lease: a clock that runs fast, or that lies, tells nonsense of nobody else's time.
//
// Pure; thread-safe.
#pragma once

#include <vector>

#include "absl/time/time.h"
#include "server/stored/attempt_timings.h"
#include "server/stored/interval.h"
#include "sheaf/v1/task.pb.h"

namespace sheaf {

// The server's own, of one attempt.
struct AttemptStamps {
  // From when on the task could be leased.
  absl::Time available;
  absl::Time leased;
  // The call that handed the result in arrived. Of an attempt without a result: when it ended.
  absl::Time received;
  // The contribution was accepted, or the attempt ended otherwise.
  absl::Time ended;
};

// With its durations, brought to what can be; and the intervals between the stamps, in order. Takes time for the
// intervals that the worker sent, of which more than kWorkerIntervalsMax are passed over.
AttemptTimings PlaceAttempt(const v1::AttemptTimings& reported, const AttemptStamps& stamps);

// The intervals to show of an attempt. A server before 0.2 stored none: its worker's durations are placed one after the
// other from the lease on.
std::vector<Interval> IntervalsOf(const AttemptTimings& timings, absl::Duration ended_after);

inline constexpr int kWorkerIntervalsMax = 64;

}  // namespace sheaf
