// QueueFigures: how many tasks and rounds there are in each state, and how old the oldest task is that waits, by
// population and at any moment: kept as rounds change, and never counted anew, because there may be millions of tasks.
//
//   rounds.queue().OnLeased(round, 3);        // Whoever changes a round or its tasks says so,
//   rounds.queue().Refresh(store);            // and after a batch those that changed are looked at, once each.
//
// Refresh asks the store, which has the counts in memory, so that a batch that failed leaves nothing wrong behind: what
// it took back is looked at, too. A simulation, which nobody looks at, need not call it. Not thread-safe: the core's;
// the figures it keeps are any thread's to read.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/core/figures/core_figures.h"
#include "server/core/rounds/live_round.h"
#include "storage/task_store.h"

namespace sheaf {

class QueueFigures {
 public:
  // `figures` outlives this.
  explicit QueueFigures(CoreFigures& figures) : figures_(figures) {}

  PopulationFigures& Of(const LiveRound& round) { return figures_.Of(round.counted.slot); }

  // The round is live from now on, and is not any more.
  void Begin(LiveRound& round);
  void End(LiveRound& round);

  // Something of it has changed, or was taken back with its batch: its state, its tasks, or its accumulator.
  void NoteChange(LiveRound& round) {
    if (round.counted.has_changed) return;
    round.counted.has_changed = true;
    changed_.push_back(&round);
  }
  void OnLeased(LiveRound& round, int64_t num_leased);
  void OnLeaseEnded(LiveRound& round, AttemptOutcome outcome);
  // Tasks that are leased have a second lease; and of such a task one of the two leases has ended.
  void OnLeasedAgain(LiveRound& round, int64_t num_leased);
  void OnOneOfTwoEnded(LiveRound& round, AttemptOutcome outcome);
  // So many leases of tasks, and second leases of these, go on in another round.
  void OnCarriedOver(LiveRound& from, LiveRound& to, int64_t num_tasks, int64_t num_second);
  // It is in another state, and collects no more: all leases that it had have been cancelled.
  void OnClosed(LiveRound& round);
  void OnSpooled(const LiveRound& round, int64_t bytes) { Of(round).spooled_bytes.Add(bytes); }

  // O(those that have changed since).
  void Refresh(TaskStore& store);

 private:
  void Count(LiveRound& round, const LiveRound::Counted& now);

  CoreFigures& figures_;
  std::vector<LiveRound*> changed_;
  // By when the first of their tasks could be leased: rounds that have tasks waiting.
  using Waiting = std::set<std::pair<absl::Time, RoundId>>;
  std::array<Waiting, PopulationSlots::kNum> waiting_;
};

}  // namespace sheaf
