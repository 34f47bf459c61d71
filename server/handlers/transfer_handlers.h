// TransferHandlers: the methods of BlobService that only move bytes, free of transport. See
// proto/sheaf/v1/blob_service.proto for the contract of each.
//
//   TransferHandlers transfers(payloads, open_blobs, limits);
//   ASSIGN_OR_RETURN(v1::ReadBlobResponse chunk, transfers.ReadBlob(request, answer_bytes_max));
//
// They know neither tasks nor rounds, and ask nobody whether the caller may: so any server that shares the payload
// store can do what they do (local_transfers.h). They run in the CallPool; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/core/batches/reply.h"
#include "server/core/broadcasts/open_blobs.h"
#include "server/core/limits/limits.h"
#include "sheaf/v1/blob_service.pb.h"
#include "storage/ids.h"
#include "storage/payload_store.h"

namespace sheaf {

class TransferHandlers {
 public:
  // All must outlive the handlers.
  TransferHandlers(PayloadStore& payloads, OpenBlobs& open_blobs, const Limits& limits)
      : payloads_(payloads), open_blobs_(open_blobs), limits_(limits) {}

  // Answers before it writes, if that is likely to succeed: meanwhile the next chunk travels.
  void WriteChunk(const v1::WriteChunkRequest& request, Reply<v1::WriteChunkResponse> reply);
  absl::StatusOr<v1::QueryUploadResponse> QueryUpload(const v1::QueryUploadRequest& request);
  // Both answer with about `answer_bytes_max` at most.
  absl::StatusOr<v1::ReadBlobResponse> ReadBlob(const v1::ReadBlobRequest& request, int64_t answer_bytes_max);
  absl::StatusOr<v1::SelectRowsResponse> SelectRows(const v1::SelectRowsRequest& request, int64_t answer_bytes_max);

 private:
  // What the chunk is of.
  absl::StatusOr<UploadId> CheckChunk(const v1::WriteChunkRequest& request) const;
  // FAILED_PRECONDITION if the blob is a patch.
  absl::Status CheckWhole(const std::string& digest);

  PayloadStore& payloads_;
  OpenBlobs& open_blobs_;
  const Limits& limits_;
};

}  // namespace sheaf
