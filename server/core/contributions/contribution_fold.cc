#include "server/core/contributions/contribution_fold.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "server/core/contributions/staleness_discount.h"
#include "server/stored/attempt_timings.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

// Smaller contributions are folded on the core's thread, where it takes less than handing them over does, if the
// round's state is too small for a fold to set off much else (sparse ones let entries wait, and fold them together),
// and if it is not too many in one batch.
constexpr int64_t kFoldedHereMax = 64 << 10;
constexpr int64_t kAccumulatorFoldedHereMax = 4 << 20;
constexpr int64_t kFoldedHerePerBatchMax = 4 << 20;

void Add(const v1::AttemptTimings& timings, const v1::Contribution& contribution, int64_t num_clients,
         RoundProgress& progress) {
  progress.bytes_down += timings.bytes_down();
  for (const auto& [name, value] : contribution.metrics()) {
    progress.metrics[name] += value * static_cast<double>(num_clients);
  }
}

// What the store may know of the round's progress.
std::string StoredProgress(const LiveRound& round, const RoundProgress& progress) {
  if (IsSpooled(round)) return EncodeProgress(progress);
  RoundProgress stored = progress;
  stored.metrics = round.saved_metrics;
  return EncodeProgress(stored);
}

}  // namespace

absl::Status ContributionFold::Accept(LiveRound& round, Acceptance acceptance) {
  SHEAF_CHECK(acceptance.task.state == TaskState::kLeased, "task {} is {}", acceptance.task.id.ToString(),
              Name(acceptance.task.state));
  ValidContribution& valid = (*acceptance.unfolded)->valid;
  const v1::Contribution& contribution = valid.contribution();
  const int64_t num_clients = valid.num_clients();
  DiscountStale(round.spec.staleness(), acceptance.task.staleness, valid);
  const int64_t size_bytes = acceptance.size_bytes;
  // 1. The bytes. They are flushed before the batch is committed (BatchRunner), so that no record promises bytes that
  // are not there. A crash before the commit leaves bytes that no record names: they are counted against the disk's
  // room, and deleted with the segment by the next checkpoint.
  SpoolRef payload;
  if (acceptance.uploaded) {
    payload = *acceptance.uploaded;
  } else if (IsSpooled(round)) {
    SHEAF_CHECK(static_cast<int64_t>(acceptance.bytes.size()) == size_bytes, "an upload is moved into the spool");
    ASSIGN_OR_RETURN(payload, context_.payloads.AppendToSpool(round.id, acceptance.bytes));
  }
  // It is there from now on, whatever becomes of this batch.
  if (IsSpooled(round)) rounds_.CountSpooled(round, size_bytes);
  // 2. The record: one conditional step, which only the holder of the task's lease passes, once.
  RoundProgress progress = round.progress;
  Add(acceptance.timings.durations, contribution, num_clients, progress);
  if (!round.spec.continues().empty()) ++progress.staleness[acceptance.task.staleness];
  if (round.spec.has_straggler() && !acceptance.task.origin)
    progress.run_times.Add(acceptance.now - RunsSince(round, acceptance.task));
  const std::optional<SecondLease>& beaten = acceptance.task.second_lease;
  if (beaten && beaten->attempt < acceptance.task.attempt) ++progress.num_speculative_wins;
  ASSIGN_OR_RETURN(const ContributionRecord record,
                   context_.store.RecordContribution({.task = acceptance.task.id,
                                                      .token = acceptance.task.lease_token,
                                                      .digest = acceptance.digest,
                                                      .size_bytes = size_bytes,
                                                      .num_clients = num_clients,
                                                      .payload = payload,
                                                      .timings = EncodeTimings(acceptance.timings),
                                                      .progress = StoredProgress(round, progress),
                                                      .now = acceptance.now}));
  SHEAF_CHECK(record.sequence == round.recorded + 1, "round {} records {} after {}", round.id, record.sequence,
              round.recorded);
  round.progress = std::move(progress);
  round.recorded = record.sequence;
  round.reserved_bytes += acceptance.growth_bytes;
  rounds_.queue().OnLeaseEnded(round, AttemptOutcome::kSucceeded);
  CoreFigures& figures = context_.figures;
  figures.contribution_bytes.Observe(static_cast<double>(size_bytes));
  figures.task_run_seconds.Observe(absl::ToDoubleSeconds(acceptance.now - acceptance.task.lease_time));
  // 3. The fold, when the record is durable and not before: what the accumulator contains cannot be taken out again,
  // and a commit may fail. A crash after the commit loses the accumulator, which is refolded from checkpoint and spool.
  context_.executor.Defer([this, id = round.id, sequence = record.sequence, size_bytes, unfolded = acceptance.unfolded,
                           growth_bytes = acceptance.growth_bytes,
                           metrics = round.progress.metrics](const absl::Status& commit) {
    LiveRound* live = rounds_.Find(id);
    if (live != nullptr && !commit.ok()) live->reserved_bytes -= growth_bytes;
    if (!commit.ok() || live == nullptr) return;
    live->submitted_metrics = metrics;
    live->spooled_bytes += size_bytes;
    Submit(*live, sequence, unfolded, {.size = size_bytes, .growth = growth_bytes});
  });
  return absl::OkStatus();
}

bool ContributionFold::MayFoldHere(const LiveRound& round, int64_t bytes) const {
  if (!round.strand.is_idle() || bytes > kFoldedHereMax || round.accumulator_bytes > kAccumulatorFoldedHereMax) {
    return false;
  }
  return folded_here_bytes_ + bytes <= kFoldedHerePerBatchMax;
}

void ContributionFold::Submit(LiveRound& round, int64_t sequence, const std::shared_ptr<Unfolded>& unfolded,
                              const Bytes& bytes) {
  // Each once, and in the order of the records: a checkpoint says with one number what it contains.
  SHEAF_CHECK(sequence == round.submitted + 1, "round {} folds {} after {}", round.id, sequence, round.submitted);
  round.submitted = sequence;
  round.num_clients += (*unfolded)->valid.num_clients();
  const int64_t fold_bytes = bytes.size + (*unfolded)->valid.memory_bytes();
  const bool is_folded_here = MayFoldHere(round, fold_bytes);
  if (is_folded_here) {
    folded_here_bytes_ += fold_bytes;
    RoundAccumulator& accumulator = round.strand.accumulator();
    const absl::Duration begin = context_.figures.watch();
    accumulator.Accumulate((*unfolded)->valid);
    context_.figures.fold_seconds.Observe(absl::ToDoubleSeconds(context_.figures.watch() - begin));
    unfolded->reset();
    round.folded = sequence;
    round.reserved_bytes -= bytes.growth;
    round.accumulator_bytes = accumulator.memory_bytes();
    rounds_.queue().NoteChange(round);
  } else {
    round.strand.Fold(
        unfolded, fold_bytes,
        [this, id = round.id, sequence, growth_bytes = bytes.growth](int64_t memory_bytes, absl::Time now) {
          LiveRound* live = rounds_.Find(id);
          if (live == nullptr) return;
          live->reserved_bytes -= growth_bytes;
          OnFolded(*live, sequence, memory_bytes, now);
        });
  }
  // How much is due depends on the size of the state, which the first fold tells.
  if (is_folded_here || round.folded > 0) checkpoints_.WriteIfDue(round);
}

void ContributionFold::OnFolded(LiveRound& round, int64_t sequence, int64_t memory_bytes, absl::Time now) {
  SHEAF_CHECK(sequence == round.folded + 1 && sequence <= round.submitted, "round {} has folded {} after {} of {}",
              round.id, sequence, round.folded, round.submitted);
  round.folded = sequence;
  round.accumulator_bytes = memory_bytes;
  rounds_.queue().NoteChange(round);
  if (round.state == RoundState::kSealing && round.folded == round.recorded) round.folded_time = now;
  checkpoints_.WriteIfDue(round);
}

}  // namespace sheaf
