#include "server/core/lifecycle/round_changes.h"

#include <memory>

#include "base/check.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "storage/transitions.h"

namespace sheaf {

absl::Status RoundChanges::Make(LiveRound& round, Change change) {
  SHEAF_CHECK(IsLegalMove(round.state, change.to), "round {} goes from {} to {}", round.id, Name(round.state),
              Name(change.to));
  RETURN_IF_ERROR(context_.store
                      .MoveRound({.round = round.id,
                                  .from = round.state,
                                  .to = change.to,
                                  .now = change.now,
                                  .error = std::move(change.error),
                                  .aggregate = std::move(change.aggregate),
                                  .aggregate_digest = std::move(change.aggregate_digest)})
                      .status());
  round.state = change.to;
  rounds_.queue().OnClosed(round);
  if (change.to == RoundState::kSucceeded) {
    context_.figures.round_seconds.Observe(absl::ToDoubleSeconds(change.now - round.create_time));
  }
  on_closed_(round.id);
  if (IsFinal(change.to)) {
    context_.executor.Defer([this, id = round.id, now = change.now](const absl::Status& commit) {
      if (commit.ok()) Forget(id, now);
    });
  }
  return absl::OkStatus();
}

absl::Status RoundChanges::Open(LiveRound& round, const std::string& digest, absl::Time now) {
  const absl::Time deadline_time = now + FromProto(round.spec.deadline());
  RETURN_IF_ERROR(context_.store
                      .MoveRound({.round = round.id,
                                  .from = round.state,
                                  .to = RoundState::kCollecting,
                                  .now = now,
                                  .broadcast_digest = digest,
                                  .deadline_time = deadline_time})
                      .status());
  round.state = RoundState::kCollecting;
  round.spec.set_broadcast_digest(digest);
  rounds_.MoveDeadline(round, deadline_time);
  broadcasts_.OnRoundAdded(digest, round.spec.population());
  broadcasts_.OnRoundCreated(digest, now);
  // For workers that do not prepare.
  rounds_.work().MayHaveCome(round);
  rounds_.queue().NoteChange(round);
  on_opened_(round.id);
  return absl::OkStatus();
}

void RoundChanges::End(LiveRound& round, RoundState to, const std::string& error, absl::Time now) {
  const absl::Status moved = Make(round, {.to = to, .now = now, .error = error});
  if (moved.ok()) {
    LogInfo("round {} {}: {}", round.id, Name(to), error);
  } else {
    LogError("round {} cannot become {}: {}", round.id, Name(to), moved.ToString());
  }
}

void RoundChanges::Forget(const RoundId& id, absl::Time now) {
  if (rounds_.Find(id) == nullptr) return;
  std::unique_ptr<LiveRound> round = rounds_.Remove(id);
  broadcasts_.OnRoundEnded(*round, now);
  // Behind a checkpoint that is still being written. What a crash leaves of it, the next start deletes: its round is
  // not live any more (RoundRecovery).
  std::move(round->strand).Retire([&payloads = context_.payloads, id] {
    const absl::Status status = payloads.DeleteRound(id);
    if (!status.ok()) LogWarning("the spool of round {} stays on disk until the next start: {}", id, status.ToString());
  });
}

}  // namespace sheaf
