// What a worker says of itself, as WorkerRecord::description keeps it: versions, computations and labels.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/work_service.pb.h"
#include "storage/records.h"

namespace sheaf {

// Equal for workers that say the same, in whatever order their labels lie in memory.
std::string EncodeDescription(const v1::SyncRequest& request);
// A worker of which nothing else is set. DATA_LOSS, naming it.
absl::StatusOr<v1::Worker> DecodeDescription(const WorkerRecord& record);

}  // namespace sheaf
