// The part of RoundManager between an accepted contribution and a released aggregate: spool, record, fold, checkpoint,
// seal, and the same again after a crash.
#include <fmt/format.h>

#include <utility>

#include "aggregation/wire/safetensors.h"
#include "base/check.h"
#include "base/checksum.h"
#include "base/log.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/lifecycle/round_manager.h"
#include "server/core/rounds/round_timing.h"
#include "server/stored/attempt_timings.h"
#include "server/stored/round_release.h"
#include "server/stored/round_spec.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr int kRefoldPage = 256;
// Contributions that a checkpoint of a round that spools nothing contains at least, and has more than the one before.
constexpr int64_t kEphemeralCheckpointMin = 2;

// Smaller contributions are folded on the core's thread, where it takes less than handing them over does, if the
// round's state is too small for a fold to set off much else (sparse ones let entries wait, and fold them together),
// and if it is not too many in one batch.
constexpr int64_t kFoldedHereMax = 64 << 10;
constexpr int64_t kAccumulatorFoldedHereMax = 4 << 20;
constexpr int64_t kFoldedHerePerBatchMax = 4 << 20;

bool IsSpooled(const LiveRound& round) { return round.spec.durability() == v1::DURABLE; }

// What the store may know of the round's progress.
std::string StoredProgress(const LiveRound& round, const RoundProgress& progress) {
  if (IsSpooled(round)) return EncodeProgress(progress);
  RoundProgress stored = progress;
  stored.metrics = round.saved_metrics;
  return EncodeProgress(stored);
}

// What the store has a record of must be there.
template <typename T>
absl::StatusOr<T> Recorded(absl::StatusOr<T> read) {
  if (!absl::IsNotFound(read.status())) return read;
  return absl::DataLossError(std::string(read.status().message()) +
                             ", which the store has a record of; restore the store from a backup");
}

absl::StatusOr<ValidContribution> Parse(const RoundAccumulator& accumulator, const std::string& bytes) {
  v1::Contribution contribution;
  if (!contribution.ParseFromString(bytes)) return absl::DataLossError("it does not parse");
  return accumulator.Validate(std::move(contribution));
}

// `take`, until the process is about to end: what is written then would not be finished in time.
ByteSink UnlessStopping(const Background& background, const ByteSink& take) {
  return [&background, &take](std::string_view piece) {
    return background.is_stopping() ? absl::CancelledError("the server is stopping") : take(piece);
  };
}

// OUT_OF_RANGE if a sum does not fit; else errors of PayloadStore::WriteBlob.
absl::StatusOr<v1::Aggregate> WriteAggregate(const AggregateRelease& release, PayloadStore& payloads,
                                             const Background& background) {
  v1::Aggregate aggregate;
  int64_t size_bytes = 0;
  ASSIGN_OR_RETURN(*aggregate.mutable_digest(), payloads.WriteBlob([&](const ByteSink& take) {
    const ByteSink take_or_stop = UnlessStopping(background, take);
    return WriteSafetensors(release.tensors, {}, [&](std::string_view piece) {
      size_bytes += static_cast<int64_t>(piece.size());
      return take_or_stop(piece);
    });
  }));
  aggregate.set_size_bytes(size_bytes);
  aggregate.set_num_contributions(release.num_contributions);
  aggregate.set_num_clients(release.num_clients);
  for (const v1::OutputSummary& output : release.outputs) *aggregate.add_outputs() = output;
  for (const v1::FoldCounters& fold : release.folds) *aggregate.add_folds() = fold;
  return aggregate;
}

}  // namespace

absl::Status RoundManager::Load(const RoundRecord& record, absl::Time now) {
  ASSIGN_OR_RETURN(std::vector<std::string> requirements, context_.store.ListRequirements(record.id));
  return Load(record, RequirementIndex(std::move(requirements)), now);
}

absl::Status RoundManager::Load(const RoundRecord& record, RequirementIndex requirements, absl::Time now) {
  ASSIGN_OR_RETURN(v1::RoundSpec spec, DecodeSpec(record));
  ASSIGN_OR_RETURN(RoundProgress progress, DecodeProgress(record));
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
  auto round = std::make_unique<LiveRound>(
      LiveRound{.id = record.id,
                .spec = std::move(spec),
                .create_time = record.create_time,
                .deadline_time = record.deadline_time,
                .state = record.state,
                .requirements = std::move(requirements),
                .strand = FoldStrand(context_.folds, context_.executor, record.id, *std::move(accumulator)),
                .recorded = record.num_contributions,
                .folded = record.checkpoint_sequence,
                .checkpoint = record.checkpoint,
                .checkpoint_sequence = record.checkpoint_sequence,
                .progress = std::move(progress),
                .accepted_time = now});
  round->num_tasks = record.tasks.total();
  round->checkpoint_clients = round->strand.accumulator().num_clients();
  if (round->recorded > round->folded) RETURN_IF_ERROR(Refold(*round));
  round->submitted = round->folded;
  round->num_clients = round->strand.accumulator().num_clients();
  round->accumulator_bytes = round->strand.accumulator().memory_bytes();
  round->saved_metrics = round->submitted_metrics = round->progress.metrics;
  const bool is_sealing = round->state == RoundState::kSealing;
  num_live_.Add(round->spec.population(), 1);
  num_live_tasks_.Add(round->spec.population(), round->num_tasks);
  if (round->state == RoundState::kCollecting) deadlines_.insert({round->deadline_time, round->id});
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
    ASSIGN_OR_RETURN(round.progress, DecodeProgress(record));
    LogInfo("round {}: {} contributions since the last checkpoint were not kept; their tasks are queued again",
            round.id, *forgotten);
    return absl::OkStatus();
  }
  RoundAccumulator& accumulator = round.strand.accumulator();
  while (round.folded < round.recorded) {
    ASSIGN_OR_RETURN(const std::vector<ContributionRecord> page,
                     context_.store.ListContributions(round.id, round.folded, kRefoldPage));
    if (page.empty())
      return absl::DataLossError(fmt::format("contributions of round {} are missing from the store", round.id));
    for (const ContributionRecord& record : page) {
      ASSIGN_OR_RETURN(const std::string bytes, Recorded(context_.payloads.ReadFromSpool(round.id, record.payload)));
      const absl::StatusOr<ValidContribution> valid = Parse(accumulator, bytes);
      if (!valid.ok()) {
        return absl::DataLossError(
            fmt::format("contribution {} of round {} was accepted, but cannot be folded again: {}", record.sequence,
                        round.id, valid.status().ToString()));
      }
      SHEAF_CHECK(record.sequence == round.folded + 1);
      accumulator.Accumulate(*valid, context_.parallel);
      round.folded = record.sequence;
      round.spooled_bytes += record.size_bytes;
      AddToSpool(round, record.size_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status RoundManager::Accept(LiveRound& round, Acceptance acceptance) {
  const v1::Contribution& contribution = (*acceptance.unfolded)->valid.contribution();
  const int64_t num_clients = (*acceptance.unfolded)->valid.num_clients();
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
  RoundProgress progress = round.progress;
  AddAttempt(acceptance.task, acceptance.timings, contribution, num_clients, acceptance.now, progress);
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
  round.progress = std::move(progress);
  round.recorded = record.sequence;
  round.reserved_bytes += acceptance.growth_bytes;
  context_.executor.Defer([this, id = round.id, sequence = record.sequence, size_bytes, unfolded = acceptance.unfolded,
                           growth_bytes = acceptance.growth_bytes,
                           metrics = round.progress.metrics](const absl::Status& commit) {
    LiveRound* live = Find(id);
    if (live != nullptr && !commit.ok()) live->reserved_bytes -= growth_bytes;
    if (!commit.ok() || live == nullptr) return;
    live->submitted_metrics = metrics;
    live->spooled_bytes += size_bytes;
    Submit(*live, sequence, unfolded, {.size_bytes = size_bytes, .growth_bytes = growth_bytes});
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

bool RoundManager::MayFoldHere(const LiveRound& round, int64_t bytes) {
  if (!round.strand.is_idle() || bytes > kFoldedHereMax || round.accumulator_bytes > kAccumulatorFoldedHereMax) {
    return false;
  }
  return folded_here_bytes_ + bytes <= kFoldedHerePerBatchMax;
}

void RoundManager::Submit(LiveRound& round, int64_t sequence, std::shared_ptr<Unfolded> unfolded,
                          const UnfoldedBytes& of) {
  SHEAF_CHECK(sequence == round.submitted + 1, "round {} folds {} after {}", round.id, sequence, round.submitted);
  round.submitted = sequence;
  round.num_clients += (*unfolded)->valid.num_clients();
  const int64_t bytes = of.size_bytes + (*unfolded)->valid.memory_bytes();
  const bool is_folded_here = MayFoldHere(round, bytes);
  if (is_folded_here) {
    folded_here_bytes_ += bytes;
    RoundAccumulator& accumulator = round.strand.accumulator();
    accumulator.Accumulate((*unfolded)->valid, context_.parallel);
    unfolded->reset();
    round.folded = sequence;
    round.reserved_bytes -= of.growth_bytes;
    round.accumulator_bytes = accumulator.memory_bytes();
  } else {
    round.strand.Do<int64_t>(
        bytes <= kFoldedHereMax ? FoldStrand::Length::kShort : FoldStrand::Length::kLong,
        [unfolded, &parallel = context_.parallel](RoundAccumulator& accumulator) {
          accumulator.Accumulate((*unfolded)->valid, parallel);
          unfolded->reset();
          return accumulator.memory_bytes();
        },
        [this, id = round.id, sequence, growth_bytes = of.growth_bytes](int64_t memory_bytes, absl::Time now) {
          LiveRound* live = Find(id);
          if (live == nullptr) return;
          live->reserved_bytes -= growth_bytes;
          OnFolded(*live, sequence, memory_bytes, now);
        });
  }
  // How much is due depends on the size of the state, which the first fold tells.
  if (is_folded_here || round.folded > 0) CheckpointIfDue(round);
}

void RoundManager::OnFolded(LiveRound& round, int64_t sequence, int64_t memory_bytes, absl::Time now) {
  round.folded = sequence;
  round.accumulator_bytes = memory_bytes;
  if (round.state == RoundState::kSealing && round.folded == round.recorded) round.folded_time = now;
  CheckpointIfDue(round);
}

void RoundManager::CheckpointIfDue(LiveRound& round) {
  if (round.state != RoundState::kCollecting) return;
  const int64_t contributions = round.submitted - round.checkpoint_sequence;
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
  if (round.is_checkpointing || round.submitted == round.checkpoint_sequence || round.submitted != round.recorded) {
    return;
  }
  const int64_t num_clients = round.num_clients;
  // Nothing individual of such a round reaches the disk: neither a state that combines too few, nor one that differs by
  // too few from the one before. What is not saved is asked for again.
  if (!IsSpooled(round) && (round.submitted - round.checkpoint_sequence < kEphemeralCheckpointMin ||
                            num_clients - round.checkpoint_clients < round.spec.min_clients())) {
    return;
  }
  // Whatever comes of it, the next is due after as much more.
  round.spooled_bytes = 0;
  // Everything recorded is in the strand before the checkpoint, so the segments so far hold nothing that it does not.
  const absl::StatusOr<int64_t> segment = context_.payloads.RollSpool(round.id);
  if (!segment.ok()) {
    LogWarning("round {} goes on without a new checkpoint: {}", round.id, segment.status().ToString());
    return;
  }
  round.is_checkpointing = true;
  auto written = std::make_shared<WrittenCheckpoint>(WrittenCheckpoint{.round = round.id,
                                                                       .name = fmt::format("c{}", round.submitted),
                                                                       .sequence = round.submitted,
                                                                       .num_clients = num_clients,
                                                                       .progress = EncodeProgress(round.progress),
                                                                       .metrics = round.progress.metrics,
                                                                       .through = *segment,
                                                                       .covered_bytes = round.spool_disk_bytes});
  round.strand.Do<absl::Status>(
      FoldStrand::Length::kLong,
      [written, &payloads = context_.payloads, &background = context_.folds](RoundAccumulator& accumulator) {
        return payloads.WriteCheckpoint(written->round, written->name, [&](const ByteSink& take) {
          return accumulator.Write(UnlessStopping(background, take));
        });
      },
      [this, written](const absl::Status& status, absl::Time) {
        LiveRound* live = Find(written->round);
        if (live == nullptr) return;
        if (status.ok()) return Record(*written);
        live->is_checkpointing = false;
        LogWarning("round {} goes on without a new checkpoint: {}", live->id, status.ToString());
      });
}

void RoundManager::Record(const WrittenCheckpoint& written) {
  const absl::Status saved = context_.store.SaveCheckpoint(
      {.round = written.round, .checkpoint = written.name, .sequence = written.sequence, .progress = written.progress});
  context_.executor.Defer([this, written, saved](const absl::Status& commit) {
    LiveRound* covered = Find(written.round);
    if (covered == nullptr) return;
    covered->is_checkpointing = false;
    if (!saved.ok() || !commit.ok()) return;
    covered->checkpoint = written.name;
    covered->checkpoint_sequence = written.sequence;
    covered->checkpoint_clients = written.num_clients;
    covered->saved_metrics = written.metrics;
    AddToSpool(*covered, -written.covered_bytes);
    covered->strand.Do<absl::Status>(
        FoldStrand::Length::kLong,
        [&payloads = context_.payloads, id = written.round, name = written.name,
         through = written.through](RoundAccumulator&) {
          absl::Status deleted = payloads.DeleteSpoolSegments(id, through);
          deleted.Update(payloads.DeleteCheckpointsExcept(id, name));
          return deleted;
        },
        [id = written.round](const absl::Status& deleted, absl::Time) {
          if (!deleted.ok()) LogWarning("covered payloads of round {} stay until it ends: {}", id, deleted.ToString());
        });
  });
}

void RoundManager::DropSpool(LiveRound& round) {
  if (round.spool_disk_bytes == 0) return;
  const absl::StatusOr<int64_t> segment = context_.payloads.RollSpool(round.id);
  if (!segment.ok()) {
    LogWarning("what was not accepted stays in the spool of round {}: {}", round.id, segment.status().ToString());
    return;
  }
  const int64_t dropped_bytes = round.spool_disk_bytes;
  AddToSpool(round, -dropped_bytes);
  round.strand.Do<absl::Status>(
      FoldStrand::Length::kLong,
      [&payloads = context_.payloads, id = round.id, through = *segment](RoundAccumulator&) {
        return payloads.DeleteSpoolSegments(id, through);
      },
      [this, id = round.id, dropped_bytes](const absl::Status& deleted, absl::Time) {
        LiveRound* live = Find(id);
        if (deleted.ok() || live == nullptr) return;
        AddToSpool(*live, dropped_bytes);
        LogWarning("what was not accepted stays in the spool of round {}: {}", id, deleted.ToString());
      });
}

void RoundManager::CheckpointAll() {
  // Each call for which there is no room asks for it.
  if (std::exchange(is_checkpointing_all_, true)) return;
  // Behind the folds of this batch: a checkpoint contains all that is recorded.
  context_.executor.Defer([this](const absl::Status&) {
    is_checkpointing_all_ = false;
    // Of rounds that spool nothing first: should there be no time for the others, their spools are still there.
    for (const bool is_spooled : {false, true}) {
      for (const auto& [id, round] : live_) {
        if (round->state == RoundState::kCollecting && IsSpooled(*round) == is_spooled) Checkpoint(*round);
      }
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

void RoundManager::Seal(const RoundId& id, absl::Time now) {
  LiveRound* round = Find(id);
  if (round == nullptr || round->state != RoundState::kSealing || round->is_releasing) return;
  if (round->folded == round->recorded) round->folded_time = now;
  SHEAF_CHECK(round->submitted == round->recorded, "round {} seals {} of {} contributions", id, round->submitted,
              round->recorded);
  if (round->num_clients < round->spec.min_clients()) {
    return End(*round, RoundState::kFailed,
               fmt::format("it combines {} clients; nothing is released below min_clients = {}", round->num_clients,
                           round->spec.min_clients()),
               now);
  }
  round->is_releasing = true;
  round->strand.Release<v1::Aggregate>(
      [&payloads = context_.payloads, &background = context_.folds](const AggregateRelease& release) {
        return WriteAggregate(release, payloads, background);
      },
      [this, id](absl::StatusOr<v1::Aggregate> aggregate, absl::Time at) { OnReleased(id, std::move(aggregate), at); });
}

void RoundManager::OnReleased(const RoundId& id, absl::StatusOr<v1::Aggregate> aggregate, absl::Time now) {
  LiveRound* round = Find(id);
  if (round == nullptr) return;
  round->is_releasing = false;
  if (round->state != RoundState::kSealing) return;
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
  // From here on nobody deletes a blob of these bytes. An older one may have been deleted as unused after it was
  // replaced by this one.
  round->written_aggregate = aggregate->digest();
  if (!context_.payloads.HasBlob(round->written_aggregate)) return Seal(id, now);
  FinishSealing(*round, *std::move(aggregate), now);
}

void RoundManager::FinishSealing(LiveRound& round, v1::Aggregate aggregate, absl::Time now) {
  RoundRelease release{
      .aggregate = std::move(aggregate),
      .phases = SplitPhases(
          round.progress,
          {.created = round.create_time, .accepted = round.accepted_time, .folded = round.folded_time, .ended = now})};
  for (const auto& [name, sum] : round.progress.metrics) {
    release.metrics[name] = sum / static_cast<double>(std::max<int64_t>(release.aggregate.num_clients(), 1));
  }
  const absl::StatusOr<RoundRecord> moved = context_.store.MoveRound({.round = round.id,
                                                                      .from = RoundState::kSealing,
                                                                      .to = RoundState::kSucceeded,
                                                                      .now = now,
                                                                      .aggregate = EncodeRelease(release),
                                                                      .aggregate_digest = release.aggregate.digest()});
  if (!moved.ok()) {
    seal_again_[round.id] = now + kSealAgainAfter;
    return;
  }
  round.state = RoundState::kSucceeded;
  LogInfo("round {} SUCCEEDED with {} contributions of {} clients", round.id, release.aggregate.num_contributions(),
          release.aggregate.num_clients());
  on_closed_(round.id);
  context_.executor.Defer([this, id = round.id, now](const absl::Status& commit) {
    if (commit.ok()) Forget(id, now);
  });
}

}  // namespace sheaf
