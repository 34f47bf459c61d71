// Speculation: tasks that stragglers hold are offered to other workers, when their time comes (see straggler_policy.h).
//
//   speculation.Note(round);                                          // A lease of it began or ended.
//   speculation.Tick(now);                                            // Before work is handed out.
//   const absl::Time begun_by = speculation.BegunBy(round, now);      // For TaskStore::LeaseAgain.
//
// An attempt becomes a straggler by time alone, and nobody calls then: of each round that has the policy it is known
// when the next one will. That costs O(log leases) and the policy, for a round whose leases have changed, once in a
// batch; rounds without the policy cost nothing. Nothing is kept that a restart would miss: the leases are the store's,
// and what attempts took is in the round's progress. Not thread-safe: the core's.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class Speculation {
 public:
  // Both outlive this.
  Speculation(CoreContext& context, LiveRounds& rounds) : context_(context), rounds_(rounds) {}

  // Its leases have changed, or are read anew.
  void Note(const LiveRound& round) {
    if (round.spec.straggler().speculate()) changed_.insert(round.id);
  }
  // After a restart, or of a batch that failed.
  void NoteAll();
  void OnRoundClosed(const RoundId& round) { Forget(round); }

  // Of a round's tasks those may be leased again whose lease began by then. Infinite past: none.
  absl::Time BegunBy(const LiveRound& round, absl::Time now) const;
  // There is one.
  bool HasStraggler(const LiveRound& round, absl::Time now) const;

  // Says of rounds which have a new straggler that work has come.
  void Tick(absl::Time now);
  absl::Time NextTick() const;

 private:
  struct Watch {
    // When the next attempt becomes a straggler.
    absl::Time due = absl::InfiniteFuture();
    // Those that began by then were offered.
    absl::Time offered_by = absl::InfinitePast();
  };
  void Look(const LiveRound& round, absl::Time now);
  void Forget(const RoundId& id);

  CoreContext& context_;
  LiveRounds& rounds_;
  std::set<RoundId> changed_;
  std::map<RoundId, Watch> watches_;
  // Those of watches_ that are due at some time.
  std::set<std::pair<absl::Time, RoundId>> by_due_;
};

}  // namespace sheaf
