#include "server/core/broadcasts/inline_broadcasts.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "server/core/broadcasts/broadcast_check.h"

namespace sheaf {

void InlineBroadcasts::Store(const Broadcast& broadcast, Then then) {
  const auto size = static_cast<int64_t>(broadcast.bytes.size());
  if (size > context_.limits.inline_bytes_max) {
    return then(context_.limits.Refuse(&Limits::inline_bytes_max, fmt::format("the broadcast has {} bytes, over", size),
                                       "upload it (BlobService.StartUpload), and name its digest"),
                absl::InfinitePast());
  }
  context_.receptions.Run(fmt::format("broadcast of {}", broadcast.request_id),
                          [this, broadcast, then = std::move(then)] {
                            context_.executor.Post([this, broadcast, then, digest = Put(broadcast)](absl::Time now) {
                              // Nobody needed it yet, so that it may have gone again.
                              const bool is_stored = digest.ok() && !digest->empty();
                              if (is_stored && !context_.payloads.HasBlob(*digest)) return Store(broadcast, then);
                              if (is_stored) broadcasts_.Touch(*digest, context_.limits.broadcast_linger, now);
                              then(digest, now);
                            });
                          });
}

absl::StatusOr<std::string> InlineBroadcasts::Put(const Broadcast& broadcast) const {
  RETURN_IF_ERROR(CheckBroadcast(MemoryBlobView(broadcast.bytes), context_.limits));
  if (!broadcast.named.empty() && broadcast.named != Sha256Hex(broadcast.bytes)) {
    return absl::InvalidArgumentError(
        fmt::format("{} is {}, and the broadcast of the request has another: leave it empty", broadcast.field,
                    broadcast.named.substr(0, 128)));
  }
  if (broadcast.validate_only) return "";
  return context_.payloads.PutBlob(broadcast.bytes);
}

}  // namespace sheaf
