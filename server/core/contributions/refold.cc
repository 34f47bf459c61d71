#include "server/core/contributions/refold.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "server/core/contributions/staleness_discount.h"
#include "server/stored/round_spec.h"

namespace sheaf {
namespace {

constexpr int kPage = 256;

// What the store has a record of must be there.
template <typename T>
absl::StatusOr<T> Recorded(absl::StatusOr<T> read) {
  if (!absl::IsNotFound(read.status())) return read;
  return absl::DataLossError(std::string(read.status().message()) +
                             ", which the store has a record of; restore the store from a backup");
}

absl::StatusOr<ValidContribution> Parse(const ContributionValidator& validator, const std::string& bytes,
                                        ParallelFor& parallel) {
  v1::Contribution contribution;
  if (!contribution.ParseFromString(bytes)) return absl::DataLossError("it does not parse");
  return validator.Validate(std::move(contribution), parallel);
}

// That of the newest checkpoint; empty if there is none yet.
absl::StatusOr<RoundAccumulator> RestoreAccumulator(CoreContext& context, const RoundRecord& record,
                                                    const v1::AggregateSpec& spec) {
  // A crash may have left one that was written but never recorded.
  const absl::Status deleted = context.payloads.DeleteCheckpointsExcept(record.id, record.checkpoint);
  // What is read from a store that is another server's may be gone already, and is no damage.
  if (absl::IsAborted(deleted)) return deleted;
  if (!deleted.ok()) LogWarning("beside the checkpoint of round {} something stays: {}", record.id, deleted.ToString());
  if (record.checkpoint.empty()) return RoundAccumulator::Create(spec);
  ASSIGN_OR_RETURN(const std::string state, Recorded(context.payloads.ReadCheckpoint(record.id, record.checkpoint)));
  return RoundAccumulator::Restore(spec, state);
}

// Nothing individual was kept: the tasks run again, and a round that was SEALING collects again.
absl::Status ForgetUnsaved(CoreContext& context, LiveRound& round) {
  RETURN_IF_ERROR(context.store.BeginBatch());
  const absl::StatusOr<int64_t> forgotten =
      context.store.ForgetContributionsAfterCheckpoint(round.id, round.closed_time);
  if (!forgotten.ok()) {
    context.store.RollbackBatch();
    return forgotten.status();
  }
  RETURN_IF_ERROR(context.store.CommitBatch());
  ASSIGN_OR_RETURN(const RoundRecord record, context.store.GetRound(round.id));
  round.state = record.state;
  round.recorded = record.num_contributions;
  ASSIGN_OR_RETURN(round.progress, DecodeProgress(record));
  LogInfo(
      "round {}: {} contributions since the last checkpoint were not kept; their tasks are queued again, but for those "
      "of other rounds",
      round.id, *forgotten);
  return absl::OkStatus();
}

// Folds what was recorded after the checkpoint. A crash here changes nothing: the checkpoint and the spool stay as they
// are until a later checkpoint is recorded.
absl::Status FoldSpooled(CoreContext& context, LiveRound& round) {
  RoundAccumulator& accumulator = round.strand.accumulator();
  while (round.folded < round.recorded) {
    ASSIGN_OR_RETURN(const std::vector<ContributionRecord> page,
                     context.store.ListContributions(round.id, round.folded, kPage));
    if (page.empty()) {
      return absl::DataLossError(fmt::format("contributions of round {} are missing from the store", round.id));
    }
    for (const ContributionRecord& record : page) {
      ASSIGN_OR_RETURN(const std::string bytes, Recorded(context.payloads.ReadFromSpool(round.id, record.payload)));
      absl::StatusOr<ValidContribution> valid = Parse(*round.strand.validator(), bytes, context.parallel);
      if (!valid.ok()) {
        return absl::DataLossError(
            fmt::format("contribution {} of round {} was accepted, but cannot be folded again: {}", record.sequence,
                        round.id, valid.status().ToString()));
      }
      SHEAF_CHECK(record.sequence == round.folded + 1, "round {} refolds {} after {}", round.id, record.sequence,
                  round.folded);
      DiscountStale(round.spec.staleness(), record.staleness, *valid);
      accumulator.Accumulate(*valid, context.parallel);
      round.folded = record.sequence;
      round.spooled_bytes += record.size_bytes;
      round.spool_disk_bytes += record.size_bytes;
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<LiveRound>> Refold(CoreContext& context, const RoundRecord& record,
                                                  RequirementIndex requirements, absl::Time now) {
  ASSIGN_OR_RETURN(v1::RoundSpec spec, DecodeSpec(record));
  ASSIGN_OR_RETURN(RoundProgress progress, DecodeProgress(record));
  ASSIGN_OR_RETURN(RoundAccumulator accumulator, RestoreAccumulator(context, record, spec.aggregate()));
  auto round =
      std::make_unique<LiveRound>(LiveRound{.id = record.id,
                                            .spec = std::move(spec),
                                            .create_time = record.create_time,
                                            .deadline_time = record.deadline_time,
                                            .state = record.state,
                                            .requirements = std::move(requirements),
                                            .strand = FoldStrand(context.folds, context.parallel, context.executor,
                                                                 record.id, std::move(accumulator), &context.figures),
                                            .recorded = record.num_contributions,
                                            .folded = record.checkpoint_sequence,
                                            .checkpoint = record.checkpoint,
                                            .checkpoint_sequence = record.checkpoint_sequence,
                                            .progress = std::move(progress),
                                            .closed_time = now});
  round->num_tasks = record.tasks.total();
  round->checkpoint_clients = round->strand.accumulator().num_clients();
  if (round->recorded > round->folded) {
    RETURN_IF_ERROR(IsSpooled(*round) ? FoldSpooled(context, *round) : ForgetUnsaved(context, *round));
  }
  SHEAF_CHECK(round->folded == round->recorded, "round {} has {} of {} contributions folded again", round->id,
              round->folded, round->recorded);
  round->submitted = round->folded;
  round->num_clients = round->strand.accumulator().num_clients();
  round->accumulator_bytes = round->strand.accumulator().memory_bytes();
  round->saved_metrics = round->submitted_metrics = round->progress.metrics;
  return round;
}

}  // namespace sheaf
