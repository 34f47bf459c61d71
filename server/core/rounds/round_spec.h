// From what a submitter asks for to what the core runs: every field checked, every default written out.
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
inline constexpr size_t kDigestedTasks = 1000;
inline constexpr size_t kTaskDigestBytes = 32;

// INVALID_ARGUMENT names the field and the remedy; RESOURCE_EXHAUSTED names the limit.
absl::StatusOr<PreparedRound> PrepareRound(const v1::RoundSpec& spec, const Limits& limits);

// The operators that a spec may name, in the order of their table.
std::vector<std::string> KnownOperators();

// The populations' and workers' alphabet: 1 to 128 of [A-Za-z0-9_.-]. INVALID_ARGUMENT naming `field`.
absl::Status ValidateName(std::string_view field, std::string_view name);

// "default" where it is empty.
std::string PopulationOrDefault(const std::string& population);

// Labels as one canonical text ("gpu=yes,region=eu"), by key.
std::string CanonicalLabels(const google::protobuf::Map<std::string, std::string>& labels);
// True if `labels` carry every pair of `requirement`, a CanonicalLabels text.
bool Fulfils(const google::protobuf::Map<std::string, std::string>& labels, std::string_view requirement);

}  // namespace sheaf
