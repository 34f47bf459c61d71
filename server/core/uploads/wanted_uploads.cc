#include "server/core/uploads/wanted_uploads.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "server/core/contributions/contribution_size.h"
#include "server/core/rounds/round_states.h"
#include "storage/second_lease.h"

namespace sheaf {

absl::StatusOr<UploadWish> AskForUpload(TaskStore& store, LiveRounds& rounds, const OfferedUpload& offered,
                                        const Identity& caller) {
  if (!caller.OwnsLease(offered.token.value())) return UploadWish::kLeaseLost;
  ASSIGN_OR_RETURN(TaskRecord task, store.GetTaskState(offered.task));
  task = AsHeldUnder(std::move(task), offered.token);
  const LiveRound* round = rounds.Find(offered.task.round);
  if (round == nullptr || !AcceptsContributions(round->state)) return UploadWish::kNotNeeded;
  if (task.lease_token != offered.token) return UploadWish::kLeaseLost;
  if (task.state == TaskState::kSucceeded) return UploadWish::kNotNeeded;
  if (task.state != TaskState::kLeased) return UploadWish::kLeaseLost;
  const absl::Status size = CheckContributionSize(offered.size_bytes, round->spec.contribution_bytes_max());
  if (!size.ok()) return absl::Status(size.code(), fmt::format("round {}: {}", round->id, std::string(size.message())));
  return IsSpooled(*round) ? UploadWish::kToDisk : UploadWish::kToMemory;
}

}  // namespace sheaf
