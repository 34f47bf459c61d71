// BlobHandlers: BlobService, free of transport. See proto/sheaf/v1/blob_service.proto for the contract of each method.
// All but StartUpload move bytes of the PayloadStore and run in the CallPool; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/calls/call_context.h"
#include "server/core/batches/reply.h"
#include "server/core/uploads/upload_names.h"
#include "sheaf/v1/blob_service.pb.h"
#include "storage/payload_store.h"

namespace sheaf {

class Core;

class BlobHandlers {
 public:
  // Both must outlive the handlers.
  BlobHandlers(Core& core, PayloadStore& payloads);

  // Asks the core whether the contribution is still needed.
  void StartUpload(const v1::StartUploadRequest& request, const CallContext& call,
                   Reply<v1::StartUploadResponse> reply);
  // Answers before it writes, if that is likely to succeed: meanwhile the next chunk travels.
  void WriteChunk(const v1::WriteChunkRequest& request, Reply<v1::WriteChunkResponse> reply);
  absl::StatusOr<v1::QueryUploadResponse> QueryUpload(const v1::QueryUploadRequest& request);
  // A finished broadcast becomes a blob, in a batch: the core must not delete one of the same bytes meanwhile. A
  // finished contribution stays an upload until a Sync refers to it.
  void FinishUpload(const v1::FinishUploadRequest& request, Reply<v1::FinishUploadResponse> reply);
  // Both answer with about `answer_bytes_max` at most.
  absl::StatusOr<v1::ReadBlobResponse> ReadBlob(const v1::ReadBlobRequest& request, int64_t answer_bytes_max);
  absl::StatusOr<v1::SelectRowsResponse> SelectRows(const v1::SelectRowsRequest& request, int64_t answer_bytes_max);

 private:
  // What the chunk is of.
  absl::StatusOr<UploadId> CheckChunk(const v1::WriteChunkRequest& request) const;
  // What it is a patch of (OpenBlobs::Check). If it may not become a broadcast it is deleted, with the reason.
  absl::StatusOr<std::vector<std::string>> CheckUploadedBroadcast(const UploadId& id);
  // With what FinishUpload and CheckUploadedBroadcast said of it.
  absl::StatusOr<v1::FinishUploadResponse> MoveToBlob(const UploadName& broadcast,
                                                      const absl::StatusOr<std::vector<std::string>>& checked,
                                                      absl::Time now);
  // FAILED_PRECONDITION if the blob is a patch.
  absl::Status CheckWhole(const std::string& digest);

  Core& core_;
  PayloadStore& payloads_;
};

}  // namespace sheaf
