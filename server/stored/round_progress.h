// RoundProgress: what a round adds up over its accepted contributions, beside what the store counts itself. Kept with
// every contribution (RoundRecord::progress), and with every checkpoint, of which it then says what that contains.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "server/stored/run_times.h"
#include "storage/records.h"

namespace sheaf {

// By name.
using Metrics = std::map<std::string, double>;

struct RoundProgress {
  int64_t bytes_down = 0;
  // Each value times the clients of its contribution.
  Metrics metrics;
  // Accepted from a task's second lease, while the first was held.
  int64_t num_speculative_wins = 0;
  // Of the accepted attempts, where the round has a StragglerPolicy.
  RunTimes run_times;
  // Contributions by staleness, where the round continues another.
  std::map<int32_t, int64_t> staleness;
};

std::string EncodeProgress(const RoundProgress& progress);
// DATA_LOSS, naming the round.
absl::StatusOr<RoundProgress> DecodeProgress(const RoundRecord& record);

}  // namespace sheaf
