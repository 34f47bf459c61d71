// Views: records of the store as the messages people and tools see. Pure.
#pragma once

#include <vector>

#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/inspection_service.pb.h"
#include "sheaf/v1/round.pb.h"
#include "sheaf/v1/task.pb.h"
#include "storage/records.h"
#include "storage/task_store.h"

namespace sheaf {

v1::Round ToProto(const RoundRecord& record);
v1::Task ToProto(const TaskRecord& record);
v1::Attempt ToProto(const AttemptRecord& record);
v1::TaskCounts ToProto(const TaskCounts& counts);
// Without the leases it holds. `profile` may be null: then it was not heard of since the server started.
v1::Worker ToProto(const WorkerRecord& record, const WorkerProfile* profile, bool is_parked);

}  // namespace sheaf
