#include "server/handlers/transfer_handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "server/core/broadcasts/row_selection.h"
#include "server/core/uploads/upload_names.h"

namespace sheaf {

void TransferHandlers::WriteChunk(const v1::WriteChunkRequest& request, Reply<v1::WriteChunkResponse> reply) {
  const absl::StatusOr<UploadId> upload = CheckChunk(request);
  if (!upload.ok()) return reply(upload.status());
  const auto answer = [&reply](int64_t committed_bytes) {
    v1::WriteChunkResponse response;
    response.set_committed_bytes(committed_bytes);
    reply(std::move(response));
  };
  bool is_answered = false;
  // A copy: the request is gone, and its bytes no longer count, once it was answered. So each thread of the pool has at
  // most one chunk that nobody counts.
  const std::string data(request.data().begin(), request.data().end());
  const absl::StatusOr<int64_t> committed =
      payloads_.WriteChunk(*upload, request.offset(), data, [&](int64_t committed_bytes) {
        is_answered = true;
        answer(committed_bytes);
      });
  if (is_answered) return;
  committed.ok() ? answer(*committed) : reply(committed.status());
}

absl::StatusOr<UploadId> TransferHandlers::CheckChunk(const v1::WriteChunkRequest& request) const {
  ASSIGN_OR_RETURN(const UploadName parsed, ParseUploadName(request.upload_id()));
  const auto size = static_cast<int64_t>(request.data().size());
  const int64_t size_max = limits_.chunk_bytes_max;
  if (size == 0 || size > size_max || request.offset() < 0) {
    return absl::InvalidArgumentError(
        fmt::format("a chunk of {} bytes at offset {}; it must have 1 to {} bytes (chunk_bytes_max)", size,
                    request.offset(), size_max));
  }
  ASSIGN_OR_RETURN(const PayloadStore::Upload upload, payloads_.GetUpload(parsed.id));
  if (request.offset() > upload.size_bytes - size) {
    return absl::ResourceExhaustedError(
        fmt::format("a chunk of {} bytes at offset {} runs past the announced size of {} bytes", size, request.offset(),
                    upload.size_bytes));
  }
  return parsed.id;
}

absl::StatusOr<v1::QueryUploadResponse> TransferHandlers::QueryUpload(const v1::QueryUploadRequest& request) {
  ASSIGN_OR_RETURN(const UploadName parsed, ParseUploadName(request.upload_id()));
  ASSIGN_OR_RETURN(const PayloadStore::Upload upload, payloads_.GetUpload(parsed.id));
  v1::QueryUploadResponse response;
  response.set_committed_bytes(upload.committed_bytes);
  response.set_size_bytes(upload.size_bytes);
  return response;
}

absl::Status TransferHandlers::CheckWhole(const std::string& digest) {
  ASSIGN_OR_RETURN(const std::vector<std::string> bases, open_blobs_.FindBases(digest));
  if (bases.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("broadcast {} is a patch of {}, and this worker reads only whole ones: update it, or have the "
                  "program send whole broadcasts",
                  digest, bases.front()));
}

absl::StatusOr<v1::ReadBlobResponse> TransferHandlers::ReadBlob(const v1::ReadBlobRequest& request,
                                                                int64_t answer_bytes_max) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const OpenBlob> blob, open_blobs_.Open(request.digest()));
  if (!request.takes_patches()) RETURN_IF_ERROR(CheckWhole(request.digest()));
  const int64_t size_bytes = blob->bytes().size_bytes();
  if (request.length() < 0) {
    return absl::InvalidArgumentError(fmt::format("length is {}; it must not be negative", request.length()));
  }
  if (request.offset() < 0 || request.offset() > size_bytes) {
    return absl::OutOfRangeError(
        fmt::format("offset {} is not in blob {} of {} bytes", request.offset(), request.digest(), size_bytes));
  }
  const int64_t length =
      std::min(request.length() == 0 ? answer_bytes_max : std::min(request.length(), answer_bytes_max),
               size_bytes - request.offset());
  v1::ReadBlobResponse response;
  const ByteRange range = {.offset = request.offset(), .length = length};
  RETURN_IF_ERROR(blob->bytes().Append({&range, 1}, *response.mutable_data()));
  response.set_size_bytes(size_bytes);
  return response;
}

absl::StatusOr<v1::SelectRowsResponse> TransferHandlers::SelectRows(const v1::SelectRowsRequest& request,
                                                                    int64_t answer_bytes_max) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const OpenBlob> blob, open_blobs_.OpenTensors(request.digest()));
  absl::StatusOr<v1::SelectRowsResponse> rows =
      SelectRowsOf(blob->header(), blob->content(), request, answer_bytes_max);
  // A row that is too large for the room there is goes as long as it is not too large for a whole chunk.
  const int64_t chunk = limits_.chunk_bytes_max;
  if (absl::IsResourceExhausted(rows.status()) && answer_bytes_max < chunk) {
    rows = SelectRowsOf(blob->header(), blob->content(), request, chunk);
  }
  return rows;
}

}  // namespace sheaf
