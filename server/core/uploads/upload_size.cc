#include "server/core/uploads/upload_size.h"

#include <fmt/format.h>

namespace sheaf {

absl::Status CheckUploadSize(const v1::StartUploadRequest& request, const Limits& limits) {
  if (request.size_bytes() <= 0) {
    return absl::InvalidArgumentError(
        fmt::format("size_bytes is {}; an upload has at least one byte", request.size_bytes()));
  }
  const bool is_broadcast = !request.has_contribution();
  const auto limit = is_broadcast ? &Limits::broadcast_bytes_max : &Limits::contribution_bytes_max;
  if (request.size_bytes() <= limits.*limit) return absl::OkStatus();
  return limits.Refuse(limit, fmt::format("{} bytes are over the server's", request.size_bytes()));
}

}  // namespace sheaf
