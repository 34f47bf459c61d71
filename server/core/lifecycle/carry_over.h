// CarryOver: when a round is sealed that another one continues, the tasks of it that still run go on in that one
// (docs/adr/0043), and the broadcasts that they began from stay readable.
//
//   carry_over.Move(round, now);                 // In the batch that seals it, before.
//   RETURN_IF_ERROR(carry_over.Recover(round));  // After a restart, of each live round.
//
// Runs in the core's thread, inside a batch; Recover in none.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class CarryOver {
 public:
  // All outlive this.
  CarryOver(CoreContext& context, LiveRounds& rounds, Broadcasts& broadcasts)
      : context_(context), rounds_(rounds), broadcasts_(broadcasts) {}

  // Up to tasks_per_batch_max of them: the others are cancelled with their round. Nothing, if no live round continues
  // this one.
  void Move(LiveRound& from, absl::Time now);

  // The broadcasts that tasks of this round may have begun from. O(staleness.max) rounds are looked at.
  absl::Status Recover(LiveRound& round);

 private:
  CoreContext& context_;
  LiveRounds& rounds_;
  Broadcasts& broadcasts_;
};

}  // namespace sheaf
