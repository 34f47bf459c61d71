// What every Sync must bring, and what every answer to one says.
//
//   RETURN_IF_ERROR(CheckSync(request, limits));
//   v1::SyncResponse response = BeginResponse(worker, rounds, limits);
#pragma once

#include "absl/status/status.h"
#include "server/core/limits/limits.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

// INVALID_ARGUMENT naming the field; FAILED_PRECONDITION for a protocol that is not served (see protocol_window.h).
absl::Status CheckSync(const v1::SyncRequest& request, const Limits& limits);

// With neither verdicts nor leases.
v1::SyncResponse BeginResponse(const WorkerProfile& worker, const LiveRounds& rounds, const Limits& limits);

}  // namespace sheaf
