// Where an attempt's time went, as AttemptRecord::timings keeps it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/stored/interval.h"
#include "sheaf/v1/task.pb.h"
#include "storage/ids.h"
#include "storage/records.h"

namespace sheaf {

struct AttemptTimings {
  // How long things took, as its worker says.
  v1::AttemptTimings durations;
  // When they were, as the server placed them, from the wait for a worker to the attempt's end. Empty of attempts that
  // run, that ended with their round, and that a server before 0.2 stored.
  std::vector<Interval> intervals;
};

std::string EncodeTimings(const AttemptTimings& timings);
// Of an attempt at `task`. DATA_LOSS, naming it.
absl::StatusOr<AttemptTimings> DecodeTimings(const TaskId& task, const AttemptRecord& record);

}  // namespace sheaf
