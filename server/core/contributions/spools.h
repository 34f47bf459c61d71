// Spools: the files in which contributions of DURABLE rounds wait until a checkpoint contains them: how much all of
// them take, and what of them is needless.
//
//   RETURN_IF_ERROR(spools.CheckRoom(round, size_bytes));     // Before a contribution is written.
//   spools.Drop(round);                                       // After a batch that failed.
//
// Runs in the core's thread, inside a batch, unless said otherwise.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/core/batches/core_context.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class Spools {
 public:
  // Both outlive this.
  Spools(CoreContext& context, LiveRounds& rounds) : context_(context), rounds_(rounds) {}

  // RESOURCE_EXHAUSTED with a retry hint if there is no room on disk for so many more bytes of a contribution. Then
  // checkpoints make some, if they are asked for (Checkpoints::WriteAll).
  absl::Status CheckRoom(const LiveRound& round, int64_t size_bytes) const;

  // Of a round whose newest checkpoint contains all that is recorded: deletes what batches that failed have left.
  void Drop(LiveRound& round);

  // At the start, outside a batch: deletes what the round's newest checkpoint covers. A crash, or a backup, may have
  // left it.
  absl::Status DeleteCovered(const RoundRecord& record) const;

 private:
  CoreContext& context_;
  LiveRounds& rounds_;
};

}  // namespace sheaf
