// Where a worker says that an attempt's time went, as AttemptRecord::timings keeps it.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "sheaf/v1/task.pb.h"
#include "storage/ids.h"
#include "storage/records.h"

namespace sheaf {

std::string EncodeTimings(const v1::AttemptTimings& timings);
// Of an attempt at `task`. DATA_LOSS, naming it.
absl::StatusOr<v1::AttemptTimings> DecodeTimings(const TaskId& task, const AttemptRecord& record);

}  // namespace sheaf
