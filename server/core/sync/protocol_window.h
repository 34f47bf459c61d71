// The protocol versions that this server serves, and what a worker of another is told.
//
//   RETURN_IF_ERROR(CheckProtocolVersion(request.protocol_version()));
//   FillProtocolWindow(request.protocol_version(), response);
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

// FAILED_PRECONDITION, naming the window, for a worker that speaks only older ones. One that also speaks later ones is
// answered in the highest that is served.
absl::Status CheckProtocolVersion(int32_t version);

// What every answer to a worker of this version says of the server.
void FillProtocolWindow(int32_t version, v1::SyncResponse& response);

}  // namespace sheaf
