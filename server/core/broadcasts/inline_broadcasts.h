// InlineBroadcasts: broadcasts that come inside a call, and become blobs beside the core before the call goes on.
//
//   inline_broadcasts.Store({.bytes = request.broadcast(), .named = request.broadcast_digest(),
//                            .field = "broadcast_digest", .request_id = request.request_id()},
//                           [](absl::StatusOr<std::string> digest, absl::Time) { LogInfo("{}", *digest); });
//
// Runs in the core's thread, inside a batch; and so does what it calls back.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"

namespace sheaf {

class InlineBroadcasts {
 public:
  // All outlive this.
  InlineBroadcasts(CoreContext& context, Broadcasts& broadcasts, OpenBlobs& open_blobs)
      : context_(context), broadcasts_(broadcasts), open_blobs_(open_blobs) {}

  // What is referred to lives until `then` is called.
  struct Broadcast {
    // A safetensors file, at most inline_bytes_max.
    const std::string& bytes;
    // What the caller says its digest is; may be empty.
    const std::string& named;
    // Of the request, in which `named` stands.
    std::string_view field;
    std::string_view request_id;
    // Check it, store nothing.
    bool validate_only = false;
  };
  using Then = std::function<void(absl::StatusOr<std::string> digest, absl::Time now)>;
  // Calls `then` with its digest (empty, if it was only validated), now or in a later batch. INVALID_ARGUMENT if it is
  // no broadcast, a patch that does not fit, or not the one that was named; RESOURCE_EXHAUSTED, naming the limit, if it
  // is too large. Errors as PayloadStore::PutBlob.
  void Store(const Broadcast& broadcast, Then then);

 private:
  struct StoredBroadcast {
    // Empty, if it was only validated.
    std::string digest;
    // As Broadcasts::Note takes them.
    std::vector<std::string> bases;
  };
  // Beside the core.
  absl::StatusOr<StoredBroadcast> Put(const Broadcast& broadcast) const;
  void OnPut(const Broadcast& broadcast, const absl::StatusOr<StoredBroadcast>& stored, const Then& then,
             absl::Time now);

  CoreContext& context_;
  Broadcasts& broadcasts_;
  OpenBlobs& open_blobs_;
};

}  // namespace sheaf
