#include "server/core/uploads/wanted_uploads.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "server/core/contributions/contribution_size.h"
#include "storage/carried_task.h"
#include "storage/second_lease.h"
#include "storage/transitions.h"

namespace sheaf {

absl::StatusOr<UploadWish> AskForUpload(TaskStore& store, LiveRounds& rounds, const OfferedUpload& offered,
                                        const Identity& caller) {
  if (!caller.OwnsLease(offered.token.value())) return UploadWish::kLeaseLost;
  ASSIGN_OR_RETURN(TaskRecord task, FindByName(store, offered.task));
  task = AsHeldUnder(std::move(task), offered.token);
  const LiveRound* round = rounds.Find(task.id.round);
  if (round == nullptr || !TakesContribution(task, round->state)) return UploadWish::kNotNeeded;
  if (task.lease_token != offered.token) return UploadWish::kLeaseLost;
  if (task.state == TaskState::kSucceeded) return UploadWish::kNotNeeded;
  if (task.state != TaskState::kLeased) return UploadWish::kLeaseLost;
  const absl::Status size = CheckContributionSize(offered.size_bytes, round->spec.contribution_bytes_max());
  if (!size.ok()) return absl::Status(size.code(), fmt::format("round {}: {}", round->id, std::string(size.message())));
  return IsSpooled(*round) ? UploadWish::kToDisk : UploadWish::kToMemory;
}

}  // namespace sheaf
