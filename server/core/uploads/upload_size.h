// How large an upload may be: each server has its limits, whatever rounds ask for.
//
//   RETURN_IF_ERROR(CheckUploadSize(request, limits));
#pragma once

#include "absl/status/status.h"
#include "server/core/limits/limits.h"
#include "sheaf/v1/blob_service.pb.h"

namespace sheaf {

// INVALID_ARGUMENT without a byte; RESOURCE_EXHAUSTED over broadcast_bytes_max or contribution_bytes_max. A round may
// take less (see contribution_size.h).
absl::Status CheckUploadSize(const v1::StartUploadRequest& request, const Limits& limits);

}  // namespace sheaf
