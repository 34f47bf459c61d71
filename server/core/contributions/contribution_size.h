// How large a contribution may be: asked before one is uploaded, and again when it has come, by whichever way.
//
//   RETURN_IF_ERROR(CheckContributionSize(size_bytes, round.spec.contribution_bytes_max()));
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "server/core/limits/limits.h"

namespace sheaf {

// RESOURCE_EXHAUSTED if its round takes none so large.
absl::Status CheckContributionSize(int64_t size_bytes, int64_t contribution_bytes_max);

// The same of one that travels inside Sync.
absl::Status CheckInlineSize(int64_t size_bytes, const Limits& limits);

}  // namespace sheaf
