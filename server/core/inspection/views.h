// Views: records of the store as the messages people and tools see. DATA_LOSS, naming the record, if what is stored in
// it cannot be read.
//
//   ASSIGN_OR_RETURN(const v1::Round round, ToProto(record));
//
// Pure; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round.pb.h"
#include "sheaf/v1/task.pb.h"
#include "storage/records.h"
#include "storage/task_store.h"

namespace sheaf {

absl::StatusOr<v1::Round> ToProto(const RoundRecord& record);
v1::Task ToProto(const TaskRecord& record);
// Of an attempt at `task`.
absl::StatusOr<v1::Attempt> ToProto(const TaskId& task, const AttemptRecord& record);
v1::TaskCounts ToProto(const TaskCounts& counts);
// Without the leases it holds. `profile` may be null: then it was not heard of since the server started.
absl::StatusOr<v1::Worker> ToProto(const WorkerRecord& record, const WorkerProfile* profile, bool is_parked);

}  // namespace sheaf
