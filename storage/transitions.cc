#include "storage/transitions.h"

#include <algorithm>

namespace sheaf {
namespace {

constexpr RoundMove kRoundMoves[] = {
    {RoundState::kAnnounced, RoundState::kCollecting, "the broadcast arrived"},
    {RoundState::kAnnounced, RoundState::kFailed,
     "its broadcast did not come in time, or too few contributions can come"},
    {RoundState::kAnnounced, RoundState::kCancelled, "cancelled by its program or an operator"},
    {RoundState::kCollecting, RoundState::kSealing, "enough contributions were accepted"},
    {RoundState::kCollecting, RoundState::kFailed, "too few contributions can still come"},
    {RoundState::kCollecting, RoundState::kCancelled, "cancelled by its program or an operator"},
    {RoundState::kSealing, RoundState::kSucceeded, "the aggregate is released"},
    {RoundState::kSealing, RoundState::kCollecting, "a crash forgot contributions that were never spooled"},
    {RoundState::kSealing, RoundState::kFailed, "the aggregate cannot be released"},
};

constexpr TaskMove kTaskMoves[] = {
    {TaskState::kQueued, TaskState::kLeased, "a worker pulled it"},
    {TaskState::kQueued, TaskState::kCancelled, "its round stopped collecting"},
    {TaskState::kLeased, TaskState::kSucceeded, "its contribution was accepted"},
    {TaskState::kLeased, TaskState::kQueued, "its lease was lost, released or failed, and it may be tried again"},
    {TaskState::kLeased, TaskState::kFailed, "its worker reported a failure that no retry can mend"},
    {TaskState::kLeased, TaskState::kBuried, "it used up its attempts"},
    {TaskState::kLeased, TaskState::kCancelled, "its round stopped collecting, or it is carried over"},
    {TaskState::kBuried, TaskState::kQueued, "an operator requeued it"},
    {TaskState::kFailed, TaskState::kQueued, "an operator requeued it"},
    {TaskState::kSucceeded, TaskState::kQueued, "a crash forgot a contribution that was never spooled"},
    {TaskState::kSucceeded, TaskState::kCancelled, "the same, of a task that was carried over"},
};

template <typename Move, typename State>
bool Contains(std::span<const Move> moves, State from, State to) {
  return std::any_of(moves.begin(), moves.end(), [&](const Move& move) { return move.from == from && move.to == to; });
}

}  // namespace

std::span<const RoundMove> RoundMoves() { return kRoundMoves; }
std::span<const TaskMove> TaskMoves() { return kTaskMoves; }

bool IsLegalMove(RoundState from, RoundState to) { return Contains(RoundMoves(), from, to); }
bool IsLegalMove(TaskState from, TaskState to) { return Contains(TaskMoves(), from, to); }

bool IsFinal(RoundState state) {
  return state == RoundState::kSucceeded || state == RoundState::kFailed || state == RoundState::kCancelled;
}
bool IsEnded(TaskState state) { return state != TaskState::kQueued && state != TaskState::kLeased; }

std::string_view Name(RoundState state) {
  switch (state) {
    case RoundState::kAnnounced:
      return "ANNOUNCED";
    case RoundState::kCollecting:
      return "COLLECTING";
    case RoundState::kSealing:
      return "SEALING";
    case RoundState::kSucceeded:
      return "SUCCEEDED";
    case RoundState::kFailed:
      return "FAILED";
    case RoundState::kCancelled:
      return "CANCELLED";
  }
  return "UNKNOWN";
}

std::string_view Name(TaskState state) {
  switch (state) {
    case TaskState::kQueued:
      return "QUEUED";
    case TaskState::kLeased:
      return "LEASED";
    case TaskState::kSucceeded:
      return "SUCCEEDED";
    case TaskState::kFailed:
      return "FAILED";
    case TaskState::kCancelled:
      return "CANCELLED";
    case TaskState::kBuried:
      return "BURIED";
  }
  return "UNKNOWN";
}

std::string_view Name(AttemptOutcome outcome) {
  switch (outcome) {
    case AttemptOutcome::kRunning:
      return "RUNNING";
    case AttemptOutcome::kSucceeded:
      return "SUCCEEDED";
    case AttemptOutcome::kFailed:
      return "FAILED";
    case AttemptOutcome::kLost:
      return "LOST";
    case AttemptOutcome::kReleased:
      return "RELEASED";
    case AttemptOutcome::kCancelled:
      return "CANCELLED";
  }
  return "UNKNOWN";
}

}  // namespace sheaf
