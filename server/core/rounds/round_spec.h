// From what a submitter asks for to what the core runs: every field checked, every default written out.
//
//   ASSIGN_OR_RETURN(PreparedRound prepared, PrepareRound(request.spec(), limits));
//
// Pure; thread-safe. O(tasks), with a hash of all that was written for them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/limits/limits.h"
#include "sheaf/v1/round.pb.h"
#include "storage/task_store.h"

namespace sheaf {

struct PreparedRound {
  // Without its listed tasks; no field is left to a default.
  v1::RoundSpec spec;
  std::vector<TaskStore::NewTask> tasks;
  // RoundRecord::task_digests: of each kDigestedTasks tasks a digest. Empty if there are no more tasks than that.
  std::string task_digests;
};
// As many tasks as open slots for each contribution of the goal, where the spec says nothing else.
inline constexpr double kOverSelectionDefault = 1.3;
inline constexpr size_t kDigestedTasks = 1000;
inline constexpr size_t kTaskDigestBytes = 32;

// INVALID_ARGUMENT names the field and the remedy; RESOURCE_EXHAUSTED names the limit.
absl::StatusOr<PreparedRound> PrepareRound(const v1::RoundSpec& spec, const Limits& limits);

// The operators that a spec may name, in the order of their table.
std::vector<std::string> KnownOperators();

}  // namespace sheaf
