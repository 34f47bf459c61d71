#include "server/core/sync/sync_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/limits/fixed_limits.h"
#include "server/core/requests/names.h"
#include "server/core/sync/protocol_window.h"

namespace sheaf {

absl::Status CheckSync(const v1::SyncRequest& request, const Limits& limits) {
  RETURN_IF_ERROR(ValidateName("worker", request.worker()));
  if (!request.population().empty()) RETURN_IF_ERROR(ValidateName("population", request.population()));
  RETURN_IF_ERROR(CheckProtocolVersion(request.protocol_version()));
  if (FromProto(request.wait()) < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(fmt::format("wait is {}; ask for 0 to {}",
                                                  absl::FormatDuration(FromProto(request.wait())),
                                                  absl::FormatDuration(limits.poll_wait_max)));
  }
  if (request.want() < 0 || request.want_announced() < 0) {
    return absl::InvalidArgumentError(fmt::format("{} is negative", request.want() < 0 ? "want" : "want_announced"));
  }
  if ((request.want() > 0 || request.want_announced() > 0) &&
      (request.poll_id().empty() || request.poll_id().size() > kRequestIdCharactersMax)) {
    return absl::InvalidArgumentError(fmt::format(
        "poll_id must have 1 to {} characters when want > 0 or want_announced > 0", kRequestIdCharactersMax));
  }
  const int64_t items = std::max({int64_t{request.want()}, int64_t{request.want_announced()},
                                  int64_t{request.results_size()}, int64_t{request.held_size()}});
  if (items > limits.sync_items_max) {
    return limits.Refuse(&Limits::sync_items_max,
                         fmt::format("this call has {} results, held leases or wanted ones, over", items));
  }
  return absl::OkStatus();
}

v1::SyncResponse BeginResponse(const WorkerProfile& worker, const LiveRounds& rounds, const Limits& limits) {
  v1::SyncResponse response;
  FillProtocolWindow(worker.protocol_version, response);
  response.set_inline_bytes_max(limits.inline_bytes_max);
  response.set_drain(worker.is_draining);
  response.set_has_announced(rounds.HasAnnounced(worker.population));
  return response;
}

}  // namespace sheaf
