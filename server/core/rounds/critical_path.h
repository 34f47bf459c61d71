// The critical path of a round: what its end waited for, from its creation to its end. A chain of intervals without
// gaps: their sum is the wall time, whatever was stored.
//
//   const std::vector<Interval> path = CriticalPath(stamps, task);
//   const v1::RoundPhases phases = SumPhases(path);              // They add up to stamps.ended - stamps.created.
//
//   created                                                                      accepted    committed  folded   ended
//      |-wait-|--- lost ---|-backoff-|-wait-|-grant-|-prepare-|-compute-|-hand_in-|-commit------|--fold----|--seal--|
//              earlier attempt               the attempt whose contribution was the last to be accepted
//
// Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "server/stored/interval.h"
#include "sheaf/v1/round.pb.h"
#include "storage/records.h"

namespace sheaf {

struct RoundStamps {
  absl::Time created;
  // No further contribution was taken.
  absl::Time closed;
  // The last contribution, and that, are durable.
  absl::Time committed;
  absl::Time folded;
  absl::Time ended;
};

// An attempt at the task whose contribution was accepted last.
struct PathAttempt {
  int32_t number = 0;
  std::string worker;
  absl::Time leased;
  absl::Time ended;
  AttemptOutcome outcome = AttemptOutcome::kRunning;
  // See attempt_placement.h.
  std::vector<Interval> intervals = {};
};
struct PathTask {
  int32_t index = 0;
  // Oldest first.
  std::vector<PathAttempt> attempts = {};
};

// Stamps that are out of order, as a clock that was set back leaves them, make intervals shorter and none negative. Of
// more than kEarlierAttemptsMax earlier attempts, the oldest are one. Takes time for the attempts and their intervals.
std::vector<Interval> CriticalPath(const RoundStamps& stamps, const PathTask& task);

// How long a path spends in each of a round's phases.
v1::RoundPhases SumPhases(std::span<const Interval> path);

inline constexpr size_t kEarlierAttemptsMax = 8;

}  // namespace sheaf
