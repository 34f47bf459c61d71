#include "server/core/broadcasts/inline_broadcasts.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {

void InlineBroadcasts::Store(const Broadcast& broadcast, Then then) {
  const auto size = static_cast<int64_t>(broadcast.bytes.size());
  if (size > context_.limits.inline_bytes_max) {
    return then(context_.limits.Refuse(&Limits::inline_bytes_max, fmt::format("the broadcast has {} bytes, over", size),
                                       "upload it (BlobService.StartUpload), and name its digest"),
                absl::InfinitePast());
  }
  context_.receptions.Run(
      fmt::format("broadcast of {}", broadcast.request_id), [this, broadcast, then = std::move(then)] {
        context_.executor.Post(
            [this, broadcast, then, stored = Put(broadcast)](absl::Time now) { OnPut(broadcast, stored, then, now); });
      });
}

void InlineBroadcasts::OnPut(const Broadcast& broadcast, const absl::StatusOr<StoredBroadcast>& stored,
                             const Then& then, absl::Time now) {
  if (!stored.ok()) return then(stored.status(), now);
  if (broadcast.validate_only) return then("", now);
  // Nobody needed it yet, so that it may have gone again.
  if (!context_.payloads.HasBlob(stored->digest)) return Store(broadcast, then);
  if (const absl::Status noted = broadcasts_.Note(stored->digest, stored->bases); !noted.ok()) return then(noted, now);
  broadcasts_.Touch(stored->digest, context_.limits.broadcast_linger, now);
  then(stored->digest, now);
}

absl::StatusOr<InlineBroadcasts::StoredBroadcast> InlineBroadcasts::Put(const Broadcast& broadcast) const {
  StoredBroadcast stored;
  ASSIGN_OR_RETURN(stored.bases, open_blobs_.Check(MemoryBlobView(broadcast.bytes)));
  if (!broadcast.named.empty() && broadcast.named != Sha256Hex(broadcast.bytes)) {
    return absl::InvalidArgumentError(
        fmt::format("{} is {}, and the broadcast of the request has another: leave it empty", broadcast.field,
                    broadcast.named.substr(0, 128)));
  }
  if (broadcast.validate_only) return stored;
  ASSIGN_OR_RETURN(stored.digest, context_.payloads.PutBlob(broadcast.bytes));
  return stored;
}

}  // namespace sheaf
