// UploadHandlers: how uploads begin and end, free of transport: what of BlobService the core has a say in. See
// proto/sheaf/v1/blob_service.proto for the contract of each method, and transfer_handlers.h for the others.
//
//   UploadHandlers uploads(core, payloads);
//   uploads.FinishUpload(request, [](absl::StatusOr<v1::FinishUploadResponse> answer) { answer.IgnoreError(); });
//
// FinishUpload runs in the CallPool, and is thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/calls/call_context.h"
#include "server/core/batches/reply.h"
#include "server/core/uploads/upload_names.h"
#include "sheaf/v1/blob_service.pb.h"
#include "storage/payload_store.h"

namespace sheaf {

class Core;

class UploadHandlers {
 public:
  // Both must outlive the handlers.
  UploadHandlers(Core& core, PayloadStore& payloads);

  // Asks the core whether the contribution is still needed.
  void StartUpload(const v1::StartUploadRequest& request, const CallContext& call,
                   Reply<v1::StartUploadResponse> reply);
  // A finished broadcast becomes a blob, in a batch: the core must not delete one of the same bytes meanwhile. A
  // finished contribution stays an upload until a Sync refers to it.
  void FinishUpload(const v1::FinishUploadRequest& request, Reply<v1::FinishUploadResponse> reply);

 private:
  // What it is a patch of (OpenBlobs::Check). If it may not become a broadcast it is deleted, with the reason.
  absl::StatusOr<std::vector<std::string>> CheckUploadedBroadcast(const UploadId& id);
  // With what FinishUpload and CheckUploadedBroadcast said of it.
  absl::StatusOr<v1::FinishUploadResponse> MoveToBlob(const UploadName& broadcast,
                                                      const absl::StatusOr<std::vector<std::string>>& checked,
                                                      absl::Time now);

  Core& core_;
  PayloadStore& payloads_;
};

}  // namespace sheaf
