#include "server/core/rounds/queue_figures.h"

#include <algorithm>
#include <optional>

#include "server/core/rounds/round_states.h"

namespace sheaf {
namespace {

constexpr std::pair<TaskState, int64_t TaskCounts::*> kCounts[] = {
    {TaskState::kQueued, &TaskCounts::queued},       {TaskState::kLeased, &TaskCounts::leased},
    {TaskState::kSucceeded, &TaskCounts::succeeded}, {TaskState::kFailed, &TaskCounts::failed},
    {TaskState::kCancelled, &TaskCounts::cancelled}, {TaskState::kBuried, &TaskCounts::buried},
};

template <typename Enum>
size_t Place(Enum value) {
  return static_cast<size_t>(value);
}

}  // namespace

void QueueFigures::Begin(LiveRound& round) {
  round.counted = {.slot = figures_.slots.Of(round.spec.population()), .state = round.state};
  PopulationFigures& figures = Of(round);
  figures.rounds[Place(round.state)].Add(1);
  figures.spooled_bytes.Add(round.spool_disk_bytes);
  NoteChange(round);
}

void QueueFigures::End(LiveRound& round) {
  if (round.counted.has_changed) changed_.erase(std::find(changed_.begin(), changed_.end(), &round));
  // As if it had never had anything.
  Count(round, {.slot = round.counted.slot, .state = round.counted.state});
  PopulationFigures& figures = Of(round);
  figures.rounds[Place(round.counted.state)].Add(-1);
  figures.spooled_bytes.Add(-round.spool_disk_bytes);
}

void QueueFigures::OnLeased(LiveRound& round, int64_t num_leased) {
  Of(round).leases_granted.Add(num_leased);
  round.counted.num_leased += num_leased;
  NoteChange(round);
}

void QueueFigures::OnLeaseEnded(LiveRound& round, AttemptOutcome outcome) {
  Of(round).leases_ended[Place(outcome)].Add();
  --round.counted.num_leased;
  NoteChange(round);
}

void QueueFigures::OnLeasedAgain(LiveRound& round, int64_t num_leased) {
  Of(round).leases_granted.Add(num_leased);
  round.counted.num_second += num_leased;
}

void QueueFigures::OnOneOfTwoEnded(LiveRound& round, AttemptOutcome outcome) {
  Of(round).leases_ended[Place(outcome)].Add();
  --round.counted.num_second;
}

void QueueFigures::OnCarriedOver(LiveRound& from, LiveRound& to, int64_t num_tasks, int64_t num_second) {
  from.counted.num_leased -= num_tasks;
  from.counted.num_second -= num_second;
  to.counted.num_leased += num_tasks;
  to.counted.num_second += num_second;
  NoteChange(from);
  NoteChange(to);
}

void QueueFigures::OnClosed(LiveRound& round) {
  PopulationFigures& figures = Of(round);
  const int64_t num_cancelled = round.counted.num_leased + round.counted.num_second;
  if (num_cancelled > 0) figures.leases_ended[Place(AttemptOutcome::kCancelled)].Add(num_cancelled);
  round.counted.num_leased = round.counted.num_second = 0;
  if (IsFinal(round.state)) figures.rounds_ended[Place(round.state)].Add();
  NoteChange(round);
}

void QueueFigures::Refresh(TaskStore& store) {
  for (LiveRound* round : std::exchange(changed_, {})) {
    LiveRound::Counted now = {
        .slot = round->counted.slot, .state = round->state, .accumulator_bytes = round->accumulator_bytes};
    if (HandsOutTasks(round->state)) {
      const absl::StatusOr<TaskCounts> tasks = store.CountTasks(round->id);
      if (tasks.ok()) now.num_leased = tasks->leased;
      // Those of an announced round are in no queue.
      if (tasks.ok() && AcceptsContributions(round->state)) now.tasks = *tasks;
      // A store that would have to look does not say: no task of the round has waited for longer than the round.
      if (now.tasks.queued > 0) now.first_available = store.FirstAvailable(round->id).value_or(round->create_time);
    }
    now.num_second = std::clamp<int64_t>(round->counted.num_second, 0, now.num_leased);
    // An operator has put LEASED tasks back, or the batch that granted them has failed.
    const int64_t num_gone = round->counted.num_leased + round->counted.num_second - now.num_leased - now.num_second;
    if (num_gone > 0) {
      Of(*round).leases_ended[Place(AttemptOutcome::kCancelled)].Add(num_gone);
    }
    Count(*round, now);
  }
}

void QueueFigures::Count(LiveRound& round, const LiveRound::Counted& now) {
  const LiveRound::Counted before = std::exchange(round.counted, now);
  PopulationFigures& figures = Of(round);
  for (const auto& [state, count] : kCounts) {
    const int64_t more = now.tasks.*count - before.tasks.*count;
    if (more != 0) figures.tasks[Place(state)].Add(more);
  }
  if (now.state != before.state) {
    figures.rounds[Place(before.state)].Add(-1);
    figures.rounds[Place(now.state)].Add(1);
  }
  if (now.accumulator_bytes != before.accumulator_bytes) {
    figures_.accumulator_bytes.Add(now.accumulator_bytes - before.accumulator_bytes);
  }
  if (now.first_available == before.first_available) return;
  Waiting& waiting = waiting_[now.slot];
  if (before.first_available != absl::InfiniteFuture()) waiting.erase({before.first_available, round.id});
  if (now.first_available != absl::InfiniteFuture()) waiting.emplace(now.first_available, round.id);
  figures.oldest_available.Set(waiting.empty() ? PopulationFigures::kNever : absl::ToUnixNanos(waiting.begin()->first));
}

}  // namespace sheaf
