// LiveRound: a round that has not ended, as the core holds it in memory. All of it can be rebuilt from the stores;
// the accumulator only ever contains contributions whose record is durable. The accumulator itself is folded into
// beside the core (see FoldStrand); what stands here of it is what the core needs to decide.
//
//   LiveRound* round = rounds.Find(id);                                // LiveRounds owns it.
//   const bool is_folded = round->folded == round->recorded;           // All that was accepted is in the accumulator.
//
// checkpoint_sequence <= folded <= submitted <= recorded. The core's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/time.h"
#include "server/core/rounds/fold_strand.h"
#include "server/core/rounds/requirement_index.h"
#include "server/stored/round_progress.h"
#include "sheaf/v1/round.pb.h"
#include "storage/records.h"

namespace sheaf {

struct LiveRound {
  RoundId id;
  // As prepared by PrepareRound: no field is left to a default.
  v1::RoundSpec spec;
  absl::Time create_time;
  absl::Time deadline_time;
  RoundState state = RoundState::kCollecting;
  // Those of its tasks.
  RequirementIndex requirements;

  FoldStrand strand;
  // Sequence numbers: the newest contribution recorded in the store; the newest one handed to the strand, which is in
  // every checkpoint and aggregate that is asked for from then on; and the newest one that is known to be folded.
  int64_t recorded = 0;
  int64_t submitted = 0;
  int64_t folded = 0;
  // Of those submitted.
  int64_t num_clients = 0;
  // Memory of the accumulator after the newest fold that is known.
  int64_t accumulator_bytes = 0;
  // That contributions which are recorded and not yet folded may add to it.
  int64_t reserved_bytes = 0;
  // Newest checkpoint.
  std::string checkpoint;
  int64_t checkpoint_sequence = 0;
  // The clients that the checkpoint combines.
  int64_t checkpoint_clients = 0;
  // Of contributions submitted since a checkpoint was last tried: another is due after enough.
  int64_t spooled_bytes = 0;
  // In the spool, on disk: also what batches that failed have left there.
  int64_t spool_disk_bytes = 0;
  int64_t num_tasks = 0;
  // Of rounds before this one, the newest first: tasks that were carried over may still read them.
  std::vector<std::string> broadcasts_before;
  // A checkpoint, or the aggregate, is being written or recorded.
  bool is_checkpointing = false;
  bool is_releasing = false;

  // Over the accepted contributions.
  RoundProgress progress;
  // Of a round that spools nothing, metrics of few clients stay in memory, like the contributions they came with: the
  // sums that its checkpoint contains, which are all that the store has, and those of what was submitted.
  Metrics saved_metrics;
  Metrics submitted_metrics;
  // Some task may be there to lease. Cleared when a lease attempt that could take any task finds none.
  bool may_have_work = true;
  // RoundWork::version() when tasks that somebody could lease may last have come to it.
  int64_t work_version = 0;
  // Of a round that is sealing: when it took no further contribution, when that was durable, and when all were folded.
  absl::Time closed_time;
  absl::Time committed_time;
  absl::Time folded_time;
  // Digest of the aggregate that was written and that the store does not know yet.
  std::string written_aggregate;

  // What QueueFigures has counted of it.
  struct Counted {
    size_t slot = 0;
    bool has_changed = false;
    RoundState state = RoundState::kCollecting;
    // As far as it collects.
    TaskCounts tasks;
    // Leases, also those of this batch.
    int64_t num_leased = 0;
    // Second leases, beside those.
    int64_t num_second = 0;
    absl::Time first_available = absl::InfiniteFuture();
    int64_t accumulator_bytes = 0;
  };
  Counted counted;
};

// Its contributions wait on disk, in the round's spool, until a checkpoint contains them. Of the others (EPHEMERAL)
// nothing individual ever reaches the disk.
inline bool IsSpooled(const LiveRound& round) { return round.spec.durability() == v1::DURABLE; }

// When its tasks could first run: when it was created, or when it was opened, if it had been announced. Its deadline
// counts from then. Says nothing of a round that is still announced.
inline absl::Time OpenTime(const LiveRound& round) { return round.deadline_time - FromProto(round.spec.deadline()); }

// When the attempt in the fields of this task could begin to run.
inline absl::Time RunsSince(const LiveRound& round, const TaskRecord& task) {
  return std::max(task.lease_time, OpenTime(round));
}

}  // namespace sheaf
