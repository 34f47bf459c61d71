#include "storage/transitions.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

constexpr RoundState kRoundStates[] = {RoundState::kAnnounced, RoundState::kCollecting, RoundState::kSealing,
                                       RoundState::kSucceeded, RoundState::kFailed,     RoundState::kCancelled};
constexpr TaskState kTaskStates[] = {TaskState::kQueued, TaskState::kLeased,    TaskState::kSucceeded,
                                     TaskState::kFailed, TaskState::kCancelled, TaskState::kBuried};

TEST_CASE("A round that ended never moves again, and every other round can still end") {
  for (RoundState from : kRoundStates) {
    int num_ways = 0;
    for (RoundState to : kRoundStates) num_ways += IsLegalMove(from, to);
    CHECK((num_ways == 0) == IsFinal(from));
    if (!IsFinal(from)) CHECK(IsLegalMove(from, RoundState::kFailed));
  }
}

TEST_CASE("A round succeeds only by sealing") {
  for (RoundState from : kRoundStates) {
    CHECK(IsLegalMove(from, RoundState::kSucceeded) == (from == RoundState::kSealing));
  }
}

TEST_CASE("A task succeeds, fails or is buried only from a lease") {
  for (TaskState from : kTaskStates) {
    for (TaskState to : {TaskState::kSucceeded, TaskState::kFailed, TaskState::kBuried}) {
      CHECK(IsLegalMove(from, to) == (from == TaskState::kLeased));
    }
  }
}

TEST_CASE("A cancelled task stays cancelled; nothing is leased but from the queue") {
  for (TaskState other : kTaskStates) {
    CHECK_FALSE(IsLegalMove(TaskState::kCancelled, other));
    CHECK(IsLegalMove(other, TaskState::kLeased) == (other == TaskState::kQueued));
  }
}

TEST_CASE("No state moves to itself, and every move says why") {
  for (const RoundMove& move : RoundMoves()) CHECK((move.from != move.to && !move.why.empty()));
  for (const TaskMove& move : TaskMoves()) CHECK((move.from != move.to && !move.why.empty()));
}

TEST_CASE("States and outcomes have the names that users read") {
  CHECK(Name(RoundState::kCollecting) == "COLLECTING");
  CHECK(Name(TaskState::kBuried) == "BURIED");
  CHECK(Name(AttemptOutcome::kLost) == "LOST");
}

}  // namespace
}  // namespace sheaf
