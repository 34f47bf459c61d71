#include "server/core/lifecycle/round_recovery.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/contributions/refold.h"
#include "server/core/rounds/round_states.h"

namespace sheaf {
namespace {

constexpr int kPage = 1000;
// A store reads the queue of a smaller one in less than a millisecond.
constexpr int64_t kLongQueue = 1000;

}  // namespace

absl::Status RoundRecovery::Recover(absl::Time now) {
  RoundId after;
  do {
    ASSIGN_OR_RETURN(
        const std::vector<RoundRecord> page,
        context_.store.ListRounds({.states = LiveStates(), .after = std::exchange(after, RoundId()), .limit = kPage}));
    for (const RoundRecord& record : page) {
      RETURN_IF_ERROR(spools_.DeleteCovered(record));
      RETURN_IF_ERROR(Load(record, now));
    }
    if (static_cast<int>(page.size()) == kPage) after = page.back().id;
  } while (!after.empty());
  RETURN_IF_ERROR(LimitTimes(now));
  RETURN_IF_ERROR(ReadLongQueues());
  // A server of 0.1 went on with rounds that could not reach their goal.
  for (const auto& [id, round] : rounds_.all()) {
    context_.executor.Post([this, id = id](absl::Time at) {
      if (LiveRound* live = rounds_.Find(id); live != nullptr) closing_.CheckExhausted(*live, at);
    });
  }
  // No backoff is longer.
  rounds_.work().ExpectRecovered(now + context_.limits.retry_backoff_max);
  RETURN_IF_ERROR(DeleteEnded());
  return broadcasts_.Recover(now);
}

absl::Status RoundRecovery::Load(const RoundRecord& record, absl::Time now) {
  ASSIGN_OR_RETURN(std::vector<std::string> requirements, context_.store.ListRequirements(record.id));
  ASSIGN_OR_RETURN(std::unique_ptr<LiveRound> loaded,
                   Refold(context_, record, RequirementIndex(std::move(requirements)), now));
  LiveRound& round = rounds_.Add(std::move(loaded));
  broadcasts_.OnRoundAdded(round.spec.broadcast_digest(), round.spec.population());
  RETURN_IF_ERROR(carry_over_.Recover(round));
  if (round.state == RoundState::kSealing) sealer_.GoOn(round.id);
  return absl::OkStatus();
}

absl::Status RoundRecovery::LimitTimes(absl::Time now) {
  RETURN_IF_ERROR(context_.store.BeginBatch());
  for (const auto& [id, round] : rounds_.all()) {
    if (!HandsOutTasks(round->state)) continue;
    const v1::RoundSpec& spec = round->spec;
    // The attempts of an announced round may wait for its broadcast first.
    const absl::Duration announced = spec.announced() ? FromProto(spec.announce_deadline()) : absl::ZeroDuration();
    const absl::Time deadline_time_max =
        now + (WaitsForBroadcast(round->state) ? announced : FromProto(spec.deadline()));
    const absl::StatusOr<bool> limited =
        context_.store.LimitTimes({.round = id,
                                   .now = now,
                                   .deadline_time_max = deadline_time_max,
                                   .expire_time_max = now + FromProto(spec.lease_duration()),
                                   .attempt_deadline_time_max = now + announced + FromProto(spec.attempt_deadline()),
                                   .available_time_max = now + context_.limits.retry_backoff_max});
    if (!limited.ok()) {
      context_.store.RollbackBatch();
      return limited.status();
    }
    if (!*limited) continue;
    LogWarning("the clock was set back while the server was down: the times of round {} were brought nearer", id);
    rounds_.MoveDeadline(*round, std::min(round->deadline_time, deadline_time_max));
  }
  return context_.store.CommitBatch();
}

absl::Status RoundRecovery::ReadLongQueues() {
  for (const auto& [id, round] : rounds_.all()) {
    if (!HandsOutTasks(round->state)) continue;
    ASSIGN_OR_RETURN(const TaskCounts tasks, context_.store.CountTasks(id));
    if (tasks.queued <= kLongQueue) continue;
    // A batch each: whoever waits for a store hears that its new owner lives.
    RETURN_IF_ERROR(context_.store.BeginBatch());
    if (const absl::Status read = context_.store.CountQueued(id).status(); !read.ok()) {
      context_.store.RollbackBatch();
      return read;
    }
    RETURN_IF_ERROR(context_.store.CommitBatch());
  }
  return absl::OkStatus();
}

absl::Status RoundRecovery::DeleteEnded() {
  ASSIGN_OR_RETURN(const std::vector<RoundId> stored, context_.payloads.ListRounds());
  for (const RoundId& id : stored) {
    if (rounds_.Find(id) != nullptr) continue;
    // Strays, and what the file system does not let go, keep no server from its rounds.
    const absl::Status deleted = context_.payloads.DeleteRound(id);
    if (absl::IsAborted(deleted)) return deleted;
    if (!deleted.ok()) LogWarning("what is left of round {} stays on disk: {}", id, deleted.ToString());
  }
  return absl::OkStatus();
}

absl::Status RoundRecovery::OnRollback(absl::Time now) {
  std::vector<RoundId> gone;
  for (const auto& [id, round] : rounds_.all()) {
    const absl::StatusOr<RoundRecord> record = context_.store.GetRound(id);
    // What cannot be read has not ended for that; but what is assumed of it may be wrong.
    if (!record.ok() && !absl::IsNotFound(record.status())) return record.status();
    if (!record.ok() || IsFinal(record->state)) {
      gone.push_back(id);
    } else {
      RETURN_IF_ERROR(Reread(*round, *record, now));
    }
  }
  for (const RoundId& id : gone) {
    const std::unique_ptr<LiveRound> round = rounds_.Remove(id);
    broadcasts_.OnRoundUndone(round->spec.broadcast_digest());
  }
  return absl::OkStatus();
}

absl::Status RoundRecovery::Reread(LiveRound& round, const RoundRecord& record, absl::Time now) {
  // What is folded is durable, whatever failed: only what is recorded may have to be taken back, never a fold.
  SHEAF_CHECK(record.num_contributions == round.submitted, "round {} has folded {} of {} contributions", round.id,
              round.submitted, record.num_contributions);
  round.state = record.state;
  // The batch had opened it: it reads the broadcast no more, unless another round of its population does.
  if (round.spec.broadcast_digest() != record.broadcast_digest) {
    const std::string undone = std::exchange(*round.spec.mutable_broadcast_digest(), record.broadcast_digest);
    broadcasts_.OnRoundUndone(undone);
  }
  if (EndsAtDeadline(round.state)) rounds_.MoveDeadline(round, record.deadline_time);
  round.recorded = record.num_contributions;
  rounds_.SetNumTasks(round, record.tasks.total());
  // No checkpoint would make room for it, and the disk may be full.
  if (round.recorded == round.checkpoint_sequence) spools_.Drop(round);
  rounds_.work().MayHaveCome(round);
  rounds_.queue().NoteChange(round);
  if (round.state == RoundState::kSealing) sealer_.TryAgain(round.id, now);
  ASSIGN_OR_RETURN(round.progress, DecodeProgress(record));
  round.progress.metrics = round.submitted_metrics;
  return absl::OkStatus();
}

}  // namespace sheaf
