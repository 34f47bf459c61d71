// RoundRelease: what a round that succeeded released, as RoundRecord::aggregate keeps it. The tensors are a blob.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/stored/interval.h"
#include "server/stored/round_progress.h"
#include "sheaf/v1/aggregation.pb.h"
#include "sheaf/v1/round.pb.h"
#include "storage/records.h"

namespace sheaf {

struct RoundRelease {
  v1::Aggregate aggregate;
  v1::RoundPhases phases;
  // Means.
  Metrics metrics;
  // See Round.critical_path. Empty of rounds that a server before 0.2 released.
  std::vector<Interval> critical_path;
};

std::string EncodeRelease(const RoundRelease& release);
// Of a round that succeeded. DATA_LOSS, naming the round.
absl::StatusOr<RoundRelease> DecodeRelease(const RoundRecord& record);

}  // namespace sheaf
