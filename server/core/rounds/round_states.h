// What a state of a round means to the core, beside what it means to the store (HandsOutTasks, IsFinal of
// storage/transitions.h). Rooms ask one of these and compare no state themselves, so that a state that is added has one
// place to be thought about.
//
//   if (!AcceptsContributions(round.state)) return absl::FailedPreconditionError("it came too late");
#pragma once

#include <vector>

#include "storage/records.h"
#include "storage/transitions.h"

namespace sheaf {

// Its broadcast has not come yet: its tasks are prepared, by workers that ask for that, and are in no queue.
constexpr bool WaitsForBroadcast(RoundState state) { return state == RoundState::kAnnounced; }

// A result may still become part of its aggregate.
constexpr bool AcceptsContributions(RoundState state) { return state == RoundState::kCollecting; }

// Its deadline ends it. Once it is SEALING, it has all that it will get, and takes the time that it takes.
constexpr bool EndsAtDeadline(RoundState state) { return HandsOutTasks(state); }

// Those of a round that is held in memory, and is taken up again after a restart.
inline std::vector<RoundState> LiveStates() {
  std::vector<RoundState> states;
  for (const RoundState state : {RoundState::kAnnounced, RoundState::kCollecting, RoundState::kSealing,
                                 RoundState::kSucceeded, RoundState::kFailed, RoundState::kCancelled}) {
    if (!IsFinal(state)) states.push_back(state);
  }
  return states;
}

}  // namespace sheaf
