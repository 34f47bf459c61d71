// ContributionFold: the exactly-once way of a contribution from its validation into its round's accumulator: spooled
// and recorded in one batch, folded when that batch is durable (architecture.md: "How a contribution travels").
//
//   fold.BeginBatch();
//   RETURN_IF_ERROR(fold.Accept(round, {.task = task, .bytes = bytes, .unfolded = unfolded, .now = now}));
//
// A small contribution is folded on the core's thread, others beside it, in the round's strand. Folding cannot fail:
// all of a contribution was looked at before it was accepted. Runs in the core's thread, inside a batch, unless said
// otherwise.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/contributions/checkpoints.h"
#include "server/core/limits/memory_budget.h"
#include "server/core/rounds/fold_strand.h"
#include "server/core/rounds/live_rounds.h"
#include "server/stored/attempt_timings.h"

namespace sheaf {

class ContributionFold {
 public:
  // All outlive this.
  ContributionFold(CoreContext& context, LiveRounds& rounds, Checkpoints& checkpoints)
      : context_(context), rounds_(rounds), checkpoints_(checkpoints) {}

  // One that was validated, for a task that is leased under its token.
  struct Acceptance {
    TaskRecord task;
    // Only read during the call. Empty if they were uploaded.
    std::string_view bytes;
    int64_t size_bytes = 0;
    // SHA-256 of the bytes, hex.
    std::string digest;
    // Where the bytes lie already, if they were uploaded; else they are appended to the spool.
    std::optional<SpoolRef> uploaded;
    std::shared_ptr<Unfolded> unfolded;
    // Memory that folding it may take: reserved until then.
    int64_t growth_bytes = 0;
    AttemptTimings timings;
    absl::Time now;
  };
  // OK: once this batch is durable the contribution counts, and is folded. Errors as TaskStore::RecordContribution and
  // PayloadStore::AppendToSpool; then nothing has happened.
  absl::Status Accept(LiveRound& round, Acceptance acceptance);

  // Little is folded on the core's thread in one batch.
  void BeginBatch() { folded_here_bytes_ = 0; }

  // Memory of contributions that are being received or wait to be folded. Thread-safe.
  MemoryBudget& unfolded() { return unfolded_; }
  const MemoryBudget& unfolded() const { return unfolded_; }

 private:
  struct Bytes {
    // As it came, and what folding it may add to the accumulator.
    int64_t size = 0;
    int64_t growth = 0;
  };

  // Hands a durable contribution to the round's strand, or folds it at once if it is small and nothing is before it.
  void Submit(LiveRound& round, int64_t sequence, const std::shared_ptr<Unfolded>& unfolded, const Bytes& bytes);
  bool MayFoldHere(const LiveRound& round, int64_t bytes) const;
  void OnFolded(LiveRound& round, int64_t sequence, int64_t memory_bytes, absl::Time now);

  CoreContext& context_;
  LiveRounds& rounds_;
  Checkpoints& checkpoints_;
  MemoryBudget unfolded_;
  // Since BeginBatch.
  int64_t folded_here_bytes_ = 0;
};

}  // namespace sheaf
