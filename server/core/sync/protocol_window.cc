#include "server/core/sync/protocol_window.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/version.h"

namespace sheaf {

absl::Status CheckProtocolVersion(int32_t version) {
  if (version >= kProtocolVersionMin) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("this worker speaks protocol version {}; the server serves {} to {}; upgrade the worker", version,
                  kProtocolVersionMin, kProtocolVersionMax));
}

void FillProtocolWindow(int32_t version, v1::SyncResponse& response) {
  response.set_protocol_version(std::min(version, kProtocolVersionMax));
  response.set_protocol_version_min(kProtocolVersionMin);
  response.set_protocol_version_max(kProtocolVersionMax);
  response.set_server_version(kVersion);
}

}  // namespace sheaf
