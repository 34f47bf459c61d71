// Checkpoints: the state of a round's accumulator, on disk, with the sequence number up to which it contains the
// round's contributions. What it contains need not be in the spool any more, and a restart refolds only what came after
// it (see refold.h).
//
//   checkpoints.WriteIfDue(round);     // After a contribution was handed to the round's strand.
//   checkpoints.WriteAll();            // The spools are full, or the process ends.
//
// Written beside the core, in the round's strand, behind the folds that were asked for before. A checkpoint counts from
// the commit that records it; until then it is a file that nobody refers to, which the next start deletes.
// Runs in the core's thread, inside a batch or what is deferred to its commit.
#pragma once

#include <cstdint>
#include <string>

#include "server/core/batches/core_context.h"
#include "server/core/rounds/live_rounds.h"

namespace sheaf {

class Checkpoints {
 public:
  // Both outlive this.
  Checkpoints(CoreContext& context, LiveRounds& rounds) : context_(context), rounds_(rounds) {}

  // Another is due after enough contributions, or after enough bytes of them (see limits.h): as many as it would have,
  // so that writing checkpoints costs no more than writing contributions did.
  void WriteIfDue(LiveRound& round);
  // When this batch is durable: of every live round that has folded something since its last.
  void WriteAll();

 private:
  struct Written {
    RoundId round;
    std::string name;
    int64_t sequence = 0;
    int64_t num_clients = 0;
    // Of what the checkpoint contains.
    std::string progress;
    Metrics metrics;
    // Segments of the spool that it covers, and their bytes.
    int64_t through = 0;
    int64_t covered_bytes = 0;
  };

  // Has one written, unless nothing is new, one is being written, or it would show too few.
  void Write(LiveRound& round);
  // It is on disk: records it, then deletes what it covers.
  void Record(const Written& written);
  void DeleteCovered(LiveRound& round, const Written& written);

  CoreContext& context_;
  LiveRounds& rounds_;
  // In this batch.
  bool is_writing_all_ = false;
};

}  // namespace sheaf
