#include "server/core/lifecycle/carry_over.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "server/core/rounds/round_states.h"
#include "server/stored/round_spec.h"

namespace sheaf {

void CarryOver::Move(LiveRound& from, absl::Time now) {
  LiveRound* const to = rounds_.SuccessorOf(from.id);
  if (to == nullptr) return;
  constexpr Limits::Count kIndexes = std::numeric_limits<int32_t>::max();
  const absl::StatusOr<std::vector<TaskRecord>> carried = context_.store.CarryOver(
      {.from = from.id,
       .to = to->id,
       .staleness_max = to->spec.staleness().max(),
       .tasks_max = static_cast<int32_t>(std::min(context_.limits.tasks_per_batch_max, kIndexes)),
       .now = now});
  if (!carried.ok()) {
    LogError("the tasks of round {} cannot go on in round {}: {}", from.id, to->id, carried.status().ToString());
    return;
  }
  if (carried->empty()) return;
  const auto num_second = std::count_if(carried->begin(), carried->end(),
                                        [](const TaskRecord& task) { return task.second_lease.has_value(); });
  rounds_.OnCarriedOver(from, *to, {.num_tasks = static_cast<int64_t>(carried->size()), .num_second = num_second});
  LogInfo("round {}: {} tasks that still run go on in round {}", from.id, carried->size(), to->id);
  // Readable already, because `from` has them: what is new is for how long. If the batch fails nothing was carried.
  std::vector<std::string> inherited = from.broadcasts_before;
  if (!from.spec.broadcast_digest().empty()) inherited.insert(inherited.begin(), from.spec.broadcast_digest());
  inherited.resize(std::min(inherited.size(), static_cast<size_t>(to->spec.staleness().max())));
  context_.executor.Defer([this, id = to->id, inherited = std::move(inherited)](const absl::Status& commit) {
    LiveRound* const live = rounds_.Find(id);
    if (commit.ok() && live != nullptr) live->broadcasts_before = inherited;
  });
}

absl::Status CarryOver::Recover(LiveRound& round) {
  RoundId before(round.spec.continues());
  for (int32_t i = 0; i < round.spec.staleness().max() && !before.empty(); ++i) {
    const absl::StatusOr<RoundRecord> record = context_.store.GetRound(before);
    // Nobody can be told any more what the broadcast of a round was that was deleted.
    if (absl::IsNotFound(record.status())) break;
    RETURN_IF_ERROR(record.status());
    // Also of one that still runs: a crash may have had it collect again, after its tasks were carried over.
    if (!record->broadcast_digest.empty()) {
      round.broadcasts_before.push_back(record->broadcast_digest);
      broadcasts_.OnRoundAdded(record->broadcast_digest, round.spec.population());
    }
    ASSIGN_OR_RETURN(const v1::RoundSpec spec, DecodeSpec(*record));
    before = RoundId(spec.continues());
  }
  return absl::OkStatus();
}

}  // namespace sheaf
