// The legal moves of rounds and tasks, in one table: whoever moves one asks it first; the simulation asks after each
// event.
//
//   SHEAF_CHECK(IsLegalMove(round.state, RoundState::kSealing), "round {} is {}", round.id, Name(round.state));
//
// Pure; thread-safe.
#pragma once

#include <span>
#include <string_view>

#include "storage/records.h"

namespace sheaf {

struct RoundMove {
  RoundState from;
  RoundState to;
  std::string_view why;
};
struct TaskMove {
  TaskState from;
  TaskState to;
  std::string_view why;
};

// The whole table, for documentation and coverage.
std::span<const RoundMove> RoundMoves();
std::span<const TaskMove> TaskMoves();

bool IsLegalMove(RoundState from, RoundState to);
bool IsLegalMove(TaskState from, TaskState to);

// ANNOUNCED, COLLECTING: its tasks may be leased; leases of them are renewed, run out and are given back.
constexpr bool HandsOutTasks(RoundState state) {
  return state == RoundState::kAnnounced || state == RoundState::kCollecting;
}
// A contribution to this task is accepted while its round is in this state: while it is COLLECTING; that of a task that
// was carried over also while it is ANNOUNCED.
inline bool TakesContribution(const TaskRecord& task, RoundState round) {
  return round == RoundState::kCollecting || (round == RoundState::kAnnounced && task.origin);
}
// SUCCEEDED, FAILED, CANCELLED.
bool IsFinal(RoundState state);
// A task that cannot move any more while its round runs, but by an operator: all but QUEUED and LEASED.
bool IsEnded(TaskState state);

// "COLLECTING", "QUEUED", "LOST" ...
std::string_view Name(RoundState state);
std::string_view Name(TaskState state);
std::string_view Name(AttemptOutcome outcome);

}  // namespace sheaf
