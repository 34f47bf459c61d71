#include "server/core/lifecycle/round_closing.h"

#include <fmt/format.h>

#include "base/plural.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "proto/time.h"
#include "server/core/rounds/round_states.h"
#include "storage/transitions.h"

namespace sheaf {
namespace {

constexpr size_t kReasonBytesMax = 1024;

}  // namespace

void RoundClosing::OnAccepted(LiveRound& round, absl::Time now) {
  if (round.recorded >= round.spec.goal()) {
    // What tasks that were carried over have brought to an announced round seals it when it opens.
    if (!WaitsForBroadcast(round.state)) sealer_.Begin(round, now);
  } else {
    CheckExhausted(round, now);
  }
}

void RoundClosing::CheckExhausted(LiveRound& round, absl::Time now) {
  if (!HandsOutTasks(round.state)) return;
  const absl::StatusOr<TaskCounts> counts = context_.store.CountTasks(round.id);
  if (!counts.ok()) return;
  const TaskCounts& tasks = *counts;
  // A BURIED task may still be requeued by an operator; a FAILED one was said to be beyond help.
  const int64_t num_possible = tasks.succeeded + tasks.queued + tasks.leased + tasks.buried;
  if (num_possible >= round.spec.min_goal()) {
    const bool has_all = tasks.queued + tasks.leased == 0 && tasks.succeeded >= round.spec.min_goal();
    if (has_all && !WaitsForBroadcast(round.state)) sealer_.Begin(round, now);
    return;
  }
  changes_.End(round, RoundState::kFailed,
               fmt::format("{} of {} tasks failed for good, so at most {} contributions can come; min_goal is {}",
                           tasks.failed, tasks.total() - tasks.cancelled, num_possible, round.spec.min_goal()),
               now);
}

absl::StatusOr<RoundRecord> RoundClosing::Cancel(const RoundId& id, const std::string& reason, absl::Time now) {
  ASSIGN_OR_RETURN(RoundRecord record, context_.store.GetRound(id));
  if (record.state == RoundState::kCancelled) return record;
  LiveRound* round = rounds_.Find(id);
  if (round == nullptr || !IsLegalMove(round->state, RoundState::kCancelled)) {
    return absl::FailedPreconditionError(fmt::format(
        "round {} is {}; only a round that is ANNOUNCED or COLLECTING can be cancelled", id, Name(record.state)));
  }
  changes_.End(*round, RoundState::kCancelled,
               reason.empty() ? "cancelled by request" : CutUtf8(reason, kReasonBytesMax), now);
  return context_.store.GetRound(id);
}

void RoundClosing::Tick(absl::Time now, absl::Time read_until) {
  for (const RoundId& id : rounds_.TakeDue(read_until)) {
    LiveRound* round = rounds_.Find(id);
    if (round == nullptr || !EndsAtDeadline(round->state)) continue;
    if (WaitsForBroadcast(round->state)) {
      changes_.End(*round, RoundState::kFailed,
                   fmt::format("it was announced, and not opened within {} (announce_deadline)",
                               absl::FormatDuration(FromProto(round->spec.announce_deadline()))),
                   now);
    } else if (round->recorded >= round->spec.min_goal()) {
      sealer_.Begin(*round, now);
    } else {
      changes_.End(*round, RoundState::kFailed,
                   fmt::format("the deadline passed with {}; min_goal is {}", Counted(round->recorded, "contribution"),
                               round->spec.min_goal()),
                   now);
    }
  }
}

}  // namespace sheaf
