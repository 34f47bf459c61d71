#include "server/core/leases/speculation.h"

#include <algorithm>

#include "server/core/leases/straggler_policy.h"
#include "server/core/rounds/round_states.h"

namespace sheaf {
namespace {

absl::Duration AgeIn(TaskStore& store, const LiveRound& round) {
  if (!round.spec.straggler().speculate() || !HandsOutTasks(round.state)) return absl::InfiniteDuration();
  const absl::StatusOr<TaskCounts> tasks = store.CountTasks(round.id);
  if (!tasks.ok()) return absl::InfiniteDuration();
  return StragglerAge({.policy = round.spec.straggler(), .tasks = *tasks, .finished = round.progress.run_times});
}

}  // namespace

void Speculation::NoteAll() {
  for (const auto& [id, round] : rounds_.all()) Note(*round);
}

absl::Time Speculation::BegunBy(const LiveRound& round, absl::Time now) const {
  const absl::Time begun_by = now - AgeIn(context_.store, round);
  // Those that were prepared began when the round opened, and so none has run for longer than that.
  return begun_by < OpenTime(round) ? absl::InfinitePast() : begun_by;
}

bool Speculation::HasStraggler(const LiveRound& round, absl::Time now) const {
  const absl::Time begun_by = BegunBy(round, now);
  if (begun_by == absl::InfinitePast()) return false;
  const absl::StatusOr<absl::Time> first = context_.store.FirstLeaseTime(round.id, absl::InfinitePast());
  return first.ok() && *first <= begun_by;
}

void Speculation::Tick(absl::Time now) {
  for (const RoundId& id : std::exchange(changed_, {})) {
    const LiveRound* round = rounds_.Find(id);
    if (round == nullptr || !HandsOutTasks(round->state)) {
      Forget(id);
    } else {
      Look(*round, now);
    }
  }
  while (!by_due_.empty() && by_due_.begin()->first <= now) {
    const RoundId id = by_due_.begin()->second;
    LiveRound* round = rounds_.Find(id);
    if (round == nullptr || !HandsOutTasks(round->state)) {
      Forget(id);
      continue;
    }
    rounds_.work().MayHaveCome(*round);
    watches_[id].offered_by = BegunBy(*round, now);
    Look(*round, now);
  }
}

absl::Time Speculation::NextTick() const {
  if (!changed_.empty()) return absl::InfinitePast();
  return by_due_.empty() ? absl::InfiniteFuture() : by_due_.begin()->first;
}

void Speculation::Look(const LiveRound& round, absl::Time now) {
  Watch& watch = watches_[round.id];
  by_due_.erase({watch.due, round.id});
  watch.due = absl::InfiniteFuture();
  const absl::Duration age = AgeIn(context_.store, round);
  // Of those that were offered some are no stragglers any more, if the others turned out to take longer, too.
  watch.offered_by = std::min(watch.offered_by, BegunBy(round, now));
  if (age == absl::InfiniteDuration()) return;
  const absl::StatusOr<absl::Time> first = context_.store.FirstLeaseTime(round.id, watch.offered_by);
  if (!first.ok() || *first == absl::InfiniteFuture()) return;
  watch.due = std::max(*first, OpenTime(round)) + age;
  by_due_.emplace(watch.due, round.id);
}

void Speculation::Forget(const RoundId& id) {
  const auto watch = watches_.find(id);
  if (watch == watches_.end()) return;
  by_due_.erase({watch->second.due, id});
  watches_.erase(watch);
}

}  // namespace sheaf
