#include "server/core/uploads/upload_size.h"

#include <fmt/format.h>

namespace sheaf {

absl::Status CheckUploadSize(const v1::StartUploadRequest& request, const Limits& limits) {
  if (request.size_bytes() <= 0) {
    return absl::InvalidArgumentError(
        fmt::format("size_bytes is {}; an upload has at least one byte", request.size_bytes()));
  }
  const bool is_broadcast = !request.has_contribution();
  const int64_t size_max = is_broadcast ? limits.broadcast_bytes_max : limits.contribution_bytes_max;
  if (request.size_bytes() <= size_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("{} bytes are over the server's {} = {}; send less, or raise {}", request.size_bytes(),
                  is_broadcast ? "broadcast_bytes_max" : "contribution_bytes_max", size_max,
                  is_broadcast ? "--broadcast-bytes-max" : "--contribution-bytes-max"));
}

}  // namespace sheaf
