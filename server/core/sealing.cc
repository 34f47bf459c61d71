// The part of RoundManager between an accepted contribution and a released aggregate: spool, record, fold, checkpoint,
// seal, and the same again after a crash.
#include <fmt/format.h>

#include <utility>

#include "aggregation/safetensors.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "server/core/proto_time.h"
#include "server/core/round_manager.h"
#include "server/core/round_timing.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr int kRefoldPage = 256;
// Contributions that a checkpoint of a round that spools nothing contains at least, and has more than the one before.
constexpr int64_t kEphemeralCheckpointMin = 2;

bool IsSpooled(const LiveRound& round) { return round.spec.durability() == v1::DURABLE; }

// What the store may know of the round's progress.
std::string StoredProgress(const LiveRound& round, const v1::Round& progress) {
  if (IsSpooled(round)) return progress.SerializeAsString();
  v1::Round stored = progress;
  *stored.mutable_metrics() = round.saved_metrics;
  return stored.SerializeAsString();
}

// What the store has a record of must be there.
template <typename T>
absl::StatusOr<T> Recorded(absl::StatusOr<T> read) {
  if (!absl::IsNotFound(read.status())) return read;
  return absl::DataLossError(std::string(read.status().message()) +
                             ", which the store has a record of; restore the store from a backup");
}

absl::StatusOr<ValidContribution> Parse(const LiveRound& round, const std::string& bytes) {
  v1::Contribution contribution;
  if (!contribution.ParseFromString(bytes)) return absl::DataLossError("it does not parse");
  return round.accumulator.Validate(std::move(contribution));
}

}  // namespace

absl::Status RoundManager::Load(const RoundRecord& record, absl::Time now) {
  v1::RoundSpec spec;
  v1::Round progress;
  if (!spec.ParseFromString(record.spec) || !progress.ParseFromString(record.progress)) {
    return absl::DataLossError(fmt::format("the spec or progress of round {} cannot be read", record.id));
  }
  ASSIGN_OR_RETURN(std::vector<std::string> requirements, context_.store.ListRequirements(record.id));
  // A crash may have left one that was written but never recorded.
  const absl::Status deleted = context_.payloads.DeleteCheckpointsExcept(record.id, record.checkpoint);
  if (!deleted.ok()) LogWarning("beside the checkpoint of round {} something stays: {}", record.id, deleted.ToString());
  absl::StatusOr<RoundAccumulator> accumulator = RoundAccumulator::Create(spec.aggregate());
  if (!record.checkpoint.empty()) {
    ASSIGN_OR_RETURN(const std::string state, Recorded(context_.payloads.ReadCheckpoint(record.id, record.checkpoint)));
    accumulator = RoundAccumulator::Restore(spec.aggregate(), state);
  }
  RETURN_IF_ERROR(accumulator.status());
  if (!spec.broadcast_digest().empty()) readers_.Add(spec.broadcast_digest(), spec.population());
  auto round = std::make_unique<LiveRound>(LiveRound{.id = record.id,
                                                     .spec = std::move(spec),
                                                     .create_time = record.create_time,
                                                     .deadline_time = record.deadline_time,
                                                     .state = record.state,
                                                     .requirements = RequirementIndex(std::move(requirements)),
                                                     .accumulator = *std::move(accumulator),
                                                     .recorded = record.num_contributions,
                                                     .folded = record.checkpoint_sequence,
                                                     .checkpoint = record.checkpoint,
                                                     .checkpoint_sequence = record.checkpoint_sequence,
                                                     .progress = std::move(progress),
                                                     .accepted_time = now});
  round->num_tasks = record.tasks.total();
  round->checkpoint_clients = round->accumulator.num_clients();
  if (round->recorded > round->folded) RETURN_IF_ERROR(Refold(*round));
  round->accumulator_bytes = round->accumulator.memory_bytes();
  round->saved_metrics = round->folded_metrics = round->progress.metrics();
  const bool is_sealing = round->state == RoundState::kSealing;
  num_live_.Add(round->spec.population(), 1);
  num_live_tasks_.Add(round->spec.population(), round->num_tasks);
  LiveRound& loaded = *(live_[record.id] = std::move(round));
  WorkMayHaveCome(loaded);
  if (is_sealing) context_.executor.Post([this, id = record.id](absl::Time at) { Seal(id, at); });
  return absl::OkStatus();
}

absl::Status RoundManager::DeleteCovered(const RoundRecord& record) {
  // A crash, or a backup, may have left segments that the checkpoint covers: nobody would read them, and nobody should.
  ASSIGN_OR_RETURN(const std::vector<ContributionRecord> first,
                   context_.store.ListContributions(record.id, record.checkpoint_sequence, 1));
  ASSIGN_OR_RETURN(const int64_t newest, context_.payloads.RollSpool(record.id));
  // Segments grow with the sequence numbers.
  const absl::Status deleted =
      context_.payloads.DeleteSpoolSegments(record.id, first.empty() ? newest : first.front().payload.segment - 1);
  if (!deleted.ok()) LogWarning("a covered segment of round {} stays on disk: {}", record.id, deleted.ToString());
  return absl::OkStatus();
}

absl::Status RoundManager::Refold(LiveRound& round) {
  if (!IsSpooled(round)) {
    // Nothing individual was kept: the tasks run again, and a round that was sealing already collects again.
    RETURN_IF_ERROR(context_.store.BeginBatch());
    const absl::StatusOr<int64_t> forgotten =
        context_.store.ForgetContributionsAfterCheckpoint(round.id, round.accepted_time);
    if (!forgotten.ok()) {
      context_.store.RollbackBatch();
      return forgotten.status();
    }
    RETURN_IF_ERROR(context_.store.CommitBatch());
    ASSIGN_OR_RETURN(const RoundRecord record, context_.store.GetRound(round.id));
    round.state = record.state;
    round.recorded = record.num_contributions;
    if (!round.progress.ParseFromString(record.progress)) {
      return absl::DataLossError(fmt::format("the progress of round {} cannot be read", round.id));
    }
    LogInfo("round {}: {} contributions since the last checkpoint were not kept; their tasks are queued again",
            round.id, *forgotten);
    return absl::OkStatus();
  }
  while (round.folded < round.recorded) {
    ASSIGN_OR_RETURN(const std::vector<ContributionRecord> page,
                     context_.store.ListContributions(round.id, round.folded, kRefoldPage));
    if (page.empty())
      return absl::DataLossError(fmt::format("contributions of round {} are missing from the store", round.id));
    for (const ContributionRecord& record : page) {
      ASSIGN_OR_RETURN(const std::string bytes, Recorded(context_.payloads.ReadFromSpool(round.id, record.payload)));
      const absl::StatusOr<ValidContribution> valid = Parse(round, bytes);
      if (!valid.ok()) {
        return absl::DataLossError(
            fmt::format("contribution {} of round {} was accepted, but cannot be folded again: {}", record.sequence,
                        round.id, valid.status().ToString()));
      }
      SHEAF_CHECK(record.sequence == round.folded + 1);
      round.accumulator.Accumulate(*valid, context_.parallel);
      round.folded = record.sequence;
      round.spooled_bytes += record.size_bytes;
      AddToSpool(round, record.size_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status RoundManager::Accept(LiveRound& round, Acceptance acceptance) {
  const v1::Contribution& contribution = acceptance.valid.contribution();
  const int64_t num_clients = acceptance.valid.num_clients();
  const int64_t size_bytes = acceptance.size_bytes;
  SpoolRef payload;
  if (acceptance.uploaded) {
    payload = *acceptance.uploaded;
  } else if (IsSpooled(round)) {
    SHEAF_CHECK(static_cast<int64_t>(acceptance.bytes.size()) == size_bytes, "an upload is moved into the spool");
    ASSIGN_OR_RETURN(payload, context_.payloads.AppendToSpool(round.id, acceptance.bytes));
  }
  // It is there from now on, whatever becomes of this batch.
  if (IsSpooled(round)) AddToSpool(round, size_bytes);
  v1::Round progress = round.progress;
  AddAttempt(acceptance.task, acceptance.timings, contribution, num_clients, acceptance.now, progress);
  ASSIGN_OR_RETURN(const ContributionRecord record,
                   context_.store.RecordContribution({.task = acceptance.task.id,
                                                      .token = acceptance.task.lease_token,
                                                      .digest = acceptance.digest,
                                                      .size_bytes = size_bytes,
                                                      .num_clients = num_clients,
                                                      .payload = payload,
                                                      .timings = acceptance.timings.SerializeAsString(),
                                                      .progress = StoredProgress(round, progress),
                                                      .now = acceptance.now}));
  round.progress = std::move(progress);
  round.recorded = record.sequence;
  auto valid = std::make_shared<ValidContribution>(std::move(acceptance.valid));
  round.reserved_bytes += acceptance.growth_bytes;
  context_.executor.Defer([this, id = round.id, sequence = record.sequence, size_bytes, valid,
                           growth_bytes = acceptance.growth_bytes,
                           metrics = round.progress.metrics()](const absl::Status& commit) {
    LiveRound* live = Find(id);
    if (live != nullptr) live->reserved_bytes -= growth_bytes;
    if (!commit.ok() || live == nullptr) return;
    live->folded_metrics = metrics;
    live->spooled_bytes += size_bytes;
    Fold(*live, sequence, *valid);
  });
  if (round.recorded >= round.spec.goal()) {
    BeginSealing(round, acceptance.now);
  } else {
    CheckExhausted(round, acceptance.now);
  }
  return absl::OkStatus();
}

absl::Status RoundManager::CheckSpool(const LiveRound& round, int64_t size_bytes) {
  const Limits& limits = context_.limits;
  const std::string& population = round.spec.population();
  const int64_t max = spool_disk_bytes_.Max(population, limits.spool_bytes_max, limits.population_percent_max);
  // Its first goes as long as there is any room: one may be as large as all that is shared.
  const int64_t own_max = spool_disk_bytes_.Of(population) == 0 ? limits.spool_bytes_max : max;
  if (!IsSpooled(round) || (spool_disk_bytes_.total() + size_bytes <= limits.spool_bytes_max &&
                            spool_disk_bytes_.Of(population) + size_bytes <= own_max)) {
    return absl::OkStatus();
  }
  CheckpointAll();
  return WithRetryAfter(absl::ResourceExhaustedError(fmt::format(
                            "contributions that no checkpoint covers yet take {} bytes of disk, {} of them of "
                            "population '{}', and {} more "
                            "would be over spool_bytes_max = {}, or over population_percent_max = {} % of what other "
                            "populations leave of "
                            "it; the rounds are writing checkpoints, so try again, or raise --spool-bytes-max",
                            spool_disk_bytes_.total(), spool_disk_bytes_.Of(population), population, size_bytes,
                            limits.spool_bytes_max, limits.population_percent_max)),
                        absl::Seconds(1));
}

void RoundManager::Fold(LiveRound& round, int64_t sequence, const ValidContribution& valid) {
  SHEAF_CHECK(sequence == round.folded + 1, "round {} folds {} after {}", round.id, sequence, round.folded);
  round.accumulator.Accumulate(valid, context_.parallel);
  round.folded = sequence;
  round.accumulator_bytes = round.accumulator.memory_bytes();
  if (round.state == RoundState::kCollecting) CheckpointIfDue(round);
}

void RoundManager::CheckpointIfDue(LiveRound& round) {
  const int64_t contributions = round.folded - round.checkpoint_sequence;
  if (round.spooled_bytes < context_.limits.checkpoint_spool_bytes &&
      contributions < context_.limits.checkpoint_contributions) {
    return;
  }
  if (contributions < context_.limits.checkpoint_contributions && round.spooled_bytes < 2 * round.accumulator_bytes) {
    return;
  }
  Checkpoint(round);
}

void RoundManager::Checkpoint(LiveRound& round) {
  if (round.is_checkpointing || round.folded == round.checkpoint_sequence || round.folded != round.recorded) return;
  const int64_t num_clients = round.accumulator.num_clients();
  // Nothing individual of such a round reaches the disk: neither a state that combines too few, nor one that differs by
  // too few from the one before. What is not saved is asked for again.
  if (!IsSpooled(round) && (round.folded - round.checkpoint_sequence < kEphemeralCheckpointMin ||
                            num_clients - round.checkpoint_clients < round.spec.min_clients())) {
    return;
  }
  // Whatever comes of it, the next is due after as much more.
  round.spooled_bytes = 0;
  // Everything recorded is folded, so the segments so far hold nothing that the checkpoint does not.
  const std::string name = fmt::format("c{}", round.folded);
  const absl::StatusOr<int64_t> segment = context_.payloads.RollSpool(round.id);
  absl::Status status = segment.status();
  if (status.ok()) status = context_.payloads.WriteCheckpoint(round.id, name, round.accumulator.Serialize());
  if (!status.ok()) {
    LogWarning("round {} goes on without a new checkpoint: {}", round.id, status.ToString());
    return;
  }
  round.is_checkpointing = true;
  // What the progress sums is what the checkpoint contains.
  std::string progress = round.progress.SerializeAsString();
  const auto metrics = round.progress.metrics();
  context_.executor.Post([this, id = round.id, name, sequence = round.folded, num_clients, metrics,
                          progress = std::move(progress), through = *segment,
                          covered_bytes = round.spool_disk_bytes](absl::Time) {
    LiveRound* live = Find(id);
    if (live == nullptr) return;
    const absl::Status saved =
        context_.store.SaveCheckpoint({.round = id, .checkpoint = name, .sequence = sequence, .progress = progress});
    context_.executor.Defer(
        [this, id, name, sequence, num_clients, metrics, through, covered_bytes, saved](const absl::Status& commit) {
          LiveRound* covered = Find(id);
          if (covered == nullptr) return;
          covered->is_checkpointing = false;
          if (!saved.ok() || !commit.ok()) return;
          covered->checkpoint = name;
          covered->checkpoint_sequence = sequence;
          covered->checkpoint_clients = num_clients;
          covered->saved_metrics = metrics;
          AddToSpool(*covered, -covered_bytes);
          absl::Status deleted = context_.payloads.DeleteSpoolSegments(id, through);
          deleted.Update(context_.payloads.DeleteCheckpointsExcept(id, name));
          if (!deleted.ok()) LogWarning("covered payloads of round {} stay until it ends: {}", id, deleted.ToString());
        });
  });
}

void RoundManager::DropSpool(LiveRound& round) {
  if (round.spool_disk_bytes == 0) return;
  const absl::StatusOr<int64_t> segment = context_.payloads.RollSpool(round.id);
  absl::Status deleted = segment.status();
  if (deleted.ok()) deleted = context_.payloads.DeleteSpoolSegments(round.id, *segment);
  if (!deleted.ok()) {
    LogWarning("what was not accepted stays in the spool of round {}: {}", round.id, deleted.ToString());
    return;
  }
  AddToSpool(round, -round.spool_disk_bytes);
}

void RoundManager::CheckpointAll() {
  // Behind the folds of this batch: a checkpoint contains all that is recorded.
  context_.executor.Defer([this](const absl::Status&) {
    for (const auto& [id, round] : live_) {
      if (round->state == RoundState::kCollecting) Checkpoint(*round);
    }
  });
}

void RoundManager::BeginSealing(LiveRound& round, absl::Time now) {
  const absl::StatusOr<RoundRecord> moved = context_.store.MoveRound(
      {.round = round.id, .from = RoundState::kCollecting, .to = RoundState::kSealing, .now = now});
  if (!moved.ok()) {
    LogError("round {} cannot be sealed: {}", round.id, moved.status().ToString());
    return;
  }
  round.state = RoundState::kSealing;
  round.accepted_time = now;
  on_closed_(round.id);
  // Behind the folds of this batch.
  context_.executor.Defer([this, id = round.id](const absl::Status& commit) {
    if (commit.ok()) context_.executor.Post([this, id](absl::Time at) { Seal(id, at); });
  });
}

absl::StatusOr<v1::Aggregate> RoundManager::WriteAggregate(const RoundAccumulator& accumulator) {
  ASSIGN_OR_RETURN(const AggregateRelease release, accumulator.Release());
  v1::Aggregate aggregate;
  int64_t size_bytes = 0;
  ASSIGN_OR_RETURN(*aggregate.mutable_digest(), context_.payloads.WriteBlob([&](const ByteSink& take) {
    return WriteSafetensors(release.tensors, {}, [&](std::string_view piece) {
      size_bytes += static_cast<int64_t>(piece.size());
      return take(piece);
    });
  }));
  aggregate.set_size_bytes(size_bytes);
  aggregate.set_num_contributions(release.num_contributions);
  aggregate.set_num_clients(release.num_clients);
  for (const v1::OutputSummary& output : release.outputs) *aggregate.add_outputs() = output;
  for (const v1::FoldCounters& fold : release.folds) *aggregate.add_folds() = fold;
  return aggregate;
}

void RoundManager::Seal(const RoundId& id, absl::Time now) {
  LiveRound* round = Find(id);
  if (round == nullptr || round->state != RoundState::kSealing) return;
  round->folded_time = now;
  SHEAF_CHECK(round->folded == round->recorded, "round {} seals {} of {} contributions", id, round->folded,
              round->recorded);
  if (round->accumulator.num_clients() < round->spec.min_clients()) {
    return End(*round, RoundState::kFailed,
               fmt::format("it combines {} clients; nothing is released below min_clients = {}",
                           round->accumulator.num_clients(), round->spec.min_clients()),
               now);
  }
  absl::StatusOr<v1::Aggregate> aggregate = WriteAggregate(round->accumulator);
  if (absl::IsOutOfRange(aggregate.status())) {
    return End(*round, RoundState::kFailed,
               fmt::format("the aggregate cannot be released: {}", std::string(aggregate.status().message())), now);
  }
  if (!aggregate.ok()) {
    // The round stays SEALING; its deadline no longer applies.
    LogError("round {} cannot write its aggregate, trying again: {}", id, aggregate.status().ToString());
    seal_again_[id] = now + kSealAgainAfter;
    return;
  }
  round->written_aggregate = aggregate->digest();
  v1::Round released;
  *released.mutable_aggregate() = *std::move(aggregate);
  for (const auto& [name, sum] : round->progress.metrics()) {
    (*released.mutable_metrics())[name] =
        sum / static_cast<double>(std::max<int64_t>(released.aggregate().num_clients(), 1));
  }
  context_.executor.Post(
      [this, id, released = std::move(released)](absl::Time at) { FinishSealing(id, released, at); });
}

void RoundManager::FinishSealing(const RoundId& id, v1::Round released, absl::Time now) {
  LiveRound* round = Find(id);
  if (round == nullptr || round->state != RoundState::kSealing) return;
  *released.mutable_phases() = SplitPhases(
      round->progress,
      {.created = round->create_time, .accepted = round->accepted_time, .folded = round->folded_time, .ended = now});
  const absl::StatusOr<RoundRecord> moved =
      context_.store.MoveRound({.round = id,
                                .from = RoundState::kSealing,
                                .to = RoundState::kSucceeded,
                                .now = now,
                                .aggregate = released.SerializeAsString(),
                                .aggregate_digest = released.aggregate().digest()});
  if (!moved.ok()) {
    seal_again_[id] = now + kSealAgainAfter;
    return;
  }
  round->state = RoundState::kSucceeded;
  LogInfo("round {} SUCCEEDED with {} contributions of {} clients", id, released.aggregate().num_contributions(),
          released.aggregate().num_clients());
  on_closed_(id);
  context_.executor.Defer([this, id, now](const absl::Status& commit) {
    if (commit.ok()) Forget(id, now);
  });
}

}  // namespace sheaf
