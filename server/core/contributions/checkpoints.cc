#include "server/core/contributions/checkpoints.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/core/rounds/round_states.h"

namespace sheaf {
namespace {

// Contributions that a checkpoint of a round that spools nothing contains at least, and has more than the one before.
constexpr int64_t kEphemeralMin = 2;

}  // namespace

void Checkpoints::WriteIfDue(LiveRound& round) {
  // Of a round that is sealed the aggregate is written next, and makes a checkpoint needless.
  if (!HandsOutTasks(round.state)) return;
  const Limits& limits = context_.limits;
  const int64_t contributions = round.submitted - round.checkpoint_sequence;
  if (contributions < limits.checkpoint_contributions) {
    if (round.spooled_bytes < limits.checkpoint_spool_bytes) return;
    if (round.spooled_bytes < 2 * round.accumulator_bytes) return;
  }
  Write(round);
}

void Checkpoints::WriteAll() {
  // Each call for which there is no room asks for it.
  if (std::exchange(is_writing_all_, true)) return;
  // Behind the folds of this batch: a checkpoint contains all that is recorded.
  context_.executor.Defer([this](const absl::Status&) {
    is_writing_all_ = false;
    // Of rounds that spool nothing first: should there be no time for the others, their spools are still there.
    for (const bool is_spooled : {false, true}) {
      for (const auto& [id, round] : rounds_.all()) {
        if (HandsOutTasks(round->state) && IsSpooled(*round) == is_spooled) Write(*round);
      }
    }
  });
}

void Checkpoints::Write(LiveRound& round) {
  // A checkpoint names one sequence number, and the newest segment that it covers. Both are true together only while
  // all that is recorded (and therefore spooled) has been handed to the strand: between a commit and the folds that are
  // deferred to it there may be more in the spool than in the strand.
  if (round.is_checkpointing || round.submitted == round.checkpoint_sequence || round.submitted != round.recorded) {
    return;
  }
  SHEAF_CHECK(round.submitted > round.checkpoint_sequence, "round {} has folded {}, its checkpoint {}", round.id,
              round.submitted, round.checkpoint_sequence);
  const int64_t num_clients = round.num_clients;
  // Nothing individual of such a round reaches the disk: neither a state that combines too few, nor one that differs by
  // too few from the one before. What is not saved is asked for again.
  if (!IsSpooled(round) && (round.submitted - round.checkpoint_sequence < kEphemeralMin ||
                            num_clients - round.checkpoint_clients < round.spec.min_clients())) {
    return;
  }
  // Whatever comes of it, the next is due after as much more.
  round.spooled_bytes = 0;
  // What is appended from here on goes into a later segment: those so far hold nothing that the checkpoint does not.
  const absl::StatusOr<int64_t> segment = context_.payloads.RollSpool(round.id);
  if (!segment.ok()) {
    LogWarning("round {} goes on without a new checkpoint: {}", round.id, segment.status().ToString());
    return;
  }
  round.is_checkpointing = true;
  auto written = std::make_shared<Written>(Written{.round = round.id,
                                                   .name = fmt::format("c{}", round.submitted),
                                                   .sequence = round.submitted,
                                                   .num_clients = num_clients,
                                                   .progress = EncodeProgress(round.progress),
                                                   .metrics = round.progress.metrics,
                                                   .through = *segment,
                                                   .covered_bytes = round.spool_disk_bytes});
  round.strand.Do<absl::Status>(
      [written, &payloads = context_.payloads, &background = context_.folds,
       &figures = context_.figures](RoundAccumulator& accumulator) {
        const absl::Duration begin = figures.watch();
        absl::Status status = payloads.WriteCheckpoint(written->round, written->name, [&](const ByteSink& take) {
          return accumulator.Write(UnlessStopping(background, take));
        });
        figures.checkpoint_seconds.Observe(absl::ToDoubleSeconds(figures.watch() - begin));
        return status;
      },
      [this, written](const absl::Status& status, absl::Time) {
        LiveRound* live = rounds_.Find(written->round);
        if (live == nullptr) return;
        if (status.ok()) return Record(*written);
        live->is_checkpointing = false;
        LogWarning("round {} goes on without a new checkpoint: {}", live->id, status.ToString());
      });
}

void Checkpoints::Record(const Written& written) {
  // The file first, then its record, then what it covers is deleted. A crash between the first two leaves a file that
  // nobody refers to; one between the last two leaves covered segments. The next start deletes both. In any other order
  // a crash would lose contributions that were ACCEPTED.
  const absl::Status saved = context_.store.SaveCheckpoint(
      {.round = written.round, .checkpoint = written.name, .sequence = written.sequence, .progress = written.progress});
  context_.executor.Defer([this, written, saved](const absl::Status& commit) {
    LiveRound* live = rounds_.Find(written.round);
    if (live == nullptr) return;
    live->is_checkpointing = false;
    if (!saved.ok() || !commit.ok()) return;
    SHEAF_CHECK(written.sequence > live->checkpoint_sequence && written.sequence <= live->recorded,
                "round {} has checkpoint {} after {} of {} contributions", live->id, written.sequence,
                live->checkpoint_sequence, live->recorded);
    live->checkpoint = written.name;
    live->checkpoint_sequence = written.sequence;
    live->checkpoint_clients = written.num_clients;
    live->saved_metrics = written.metrics;
    DeleteCovered(*live, written);
  });
}

void Checkpoints::DeleteCovered(LiveRound& round, const Written& written) {
  rounds_.CountSpooled(round, -written.covered_bytes);
  round.strand.Do<absl::Status>(
      [&payloads = context_.payloads, id = written.round, name = written.name,
       through = written.through](RoundAccumulator&) {
        absl::Status deleted = payloads.DeleteSpoolSegments(id, through);
        deleted.Update(payloads.DeleteCheckpointsExcept(id, name));
        return deleted;
      },
      [id = written.round](const absl::Status& deleted, absl::Time) {
        if (!deleted.ok()) LogWarning("covered payloads of round {} stay until it ends: {}", id, deleted.ToString());
      });
}

}  // namespace sheaf
