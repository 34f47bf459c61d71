// RoundClosing: when a round stops collecting: it has reached its goal, its deadline has come, too few contributions
// can still come, or somebody cancels it. Then it is sealed with what it has, or it fails.
//
//   RETURN_IF_ERROR(fold.Accept(round, std::move(acceptance)));
//   closing.OnAccepted(round, now);              // And OnOpened.
//   closing.CheckExhausted(round, now);          // A task of it failed for good.
//   closing.Tick(now, read_until);               // Deadlines.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/lifecycle/round_changes.h"
#include "server/core/lifecycle/round_sealer.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class RoundClosing {
 public:
  // All outlive this.
  RoundClosing(CoreContext& context, LiveRounds& rounds, RoundChanges& changes, RoundSealer& sealer)
      : context_(context), rounds_(rounds), changes_(changes), sealer_(sealer) {}

  // A contribution was recorded in this batch.
  void OnAccepted(LiveRound& round, absl::Time now);
  // An announced round was opened in this batch: tasks that were carried over may have brought it all that it needs.
  void OnOpened(LiveRound& round, absl::Time now) { OnAccepted(round, now); }
  // An attempt ended without a contribution: perhaps no task of the round can run any more.
  void CheckExhausted(LiveRound& round, absl::Time now);
  // NOT_FOUND; FAILED_PRECONDITION if it is SEALING or ended otherwise.
  absl::StatusOr<RoundRecord> Cancel(const RoundId& id, const std::string& reason, absl::Time now);

  // Closes those whose deadline came up to `read_until` (see Core::Tick).
  void Tick(absl::Time now, absl::Time read_until);
  absl::Time NextTick() const { return rounds_.NextDeadline(); }

 private:
  CoreContext& context_;
  LiveRounds& rounds_;
  RoundChanges& changes_;
  RoundSealer& sealer_;
};

}  // namespace sheaf
