// What several commands say of a round alike.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "sheaf/v1/round.pb.h"

namespace sheaf {

int64_t NumTasks(const v1::TaskCounts& tasks);
// Contributions that complete the round.
int64_t GoalOf(const v1::Round& round);
// "26/50".
std::string DoneOf(const v1::Round& round);
// From creation to its end, or to `now`.
absl::Duration ElapsedOf(const v1::Round& round, absl::Time now);
// "50: 20 queued, 3 leased, 27 succeeded"; states without tasks are left out.
std::string TaskCountsText(const v1::TaskCounts& tasks);

// OK if the round succeeded; ABORTED, saying how it ended, otherwise.
absl::Status EndStatus(const v1::Round& round);

// The round's phases under each other, each with its share of the wall time; indented.
std::string PhasesText(const v1::RoundPhases& phases);
// What the round's end waited for, in a sentence, the most first: "The critical path: 62 % computing on edge-7, 9 %
// waiting for a worker."
std::string CriticalPathText(const v1::Round& round);
// The shares alone, in percent and in the same order: "12/1/3/61/9/8/6".
std::string PhaseShares(const v1::RoundPhases& phases);

}  // namespace sheaf
