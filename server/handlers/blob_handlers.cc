#include "server/handlers/blob_handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/broadcasts/open_blobs.h"
#include "server/core/broadcasts/row_selection.h"
#include "server/core/core.h"

namespace sheaf {
namespace {

v1::FinishUploadResponse Finished(const Limits& limits) {
  v1::FinishUploadResponse response;
  *response.mutable_keep() = ToProto(limits.unreferenced_keep);
  return response;
}

}  // namespace

BlobHandlers::BlobHandlers(Core& core, PayloadStore& payloads) : core_(core), payloads_(payloads) {}

void BlobHandlers::StartUpload(const v1::StartUploadRequest& request, const CallContext& call,
                               Reply<v1::StartUploadResponse> reply) {
  reply(core_.uploads().Start(request, *call.caller, call.now));
}

void BlobHandlers::WriteChunk(const v1::WriteChunkRequest& request, Reply<v1::WriteChunkResponse> reply) {
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

absl::StatusOr<UploadId> BlobHandlers::CheckChunk(const v1::WriteChunkRequest& request) const {
  ASSIGN_OR_RETURN(const UploadName parsed, ParseUploadName(request.upload_id()));
  const auto size = static_cast<int64_t>(request.data().size());
  const int64_t size_max = core_.limits().chunk_bytes_max;
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

absl::StatusOr<v1::QueryUploadResponse> BlobHandlers::QueryUpload(const v1::QueryUploadRequest& request) {
  ASSIGN_OR_RETURN(const UploadName parsed, ParseUploadName(request.upload_id()));
  ASSIGN_OR_RETURN(const PayloadStore::Upload upload, payloads_.GetUpload(parsed.id));
  v1::QueryUploadResponse response;
  response.set_committed_bytes(upload.committed_bytes);
  response.set_size_bytes(upload.size_bytes);
  return response;
}

void BlobHandlers::FinishUpload(const v1::FinishUploadRequest& request, Reply<v1::FinishUploadResponse> reply) {
  absl::StatusOr<UploadName> parsed = ParseUploadName(request.upload_id());
  if (!parsed.ok()) return reply(parsed.status());
  // Here is what takes long: the digest, the flush, and the header of a broadcast.
  const absl::Status finished = payloads_.FinishUpload(parsed->id);
  if (!parsed->is_broadcast) {
    if (!finished.ok()) return reply(finished);
    return reply(Finished(core_.limits()));
  }
  absl::StatusOr<std::vector<std::string>> checked = std::vector<std::string>();
  if (!finished.ok()) {
    checked = finished;
  } else if (checked = CheckUploadedBroadcast(parsed->id); !checked.ok()) {
    return reply(checked.status());
  }
  Executor& executor = core_.context().executor;
  executor.Post([this, &executor, broadcast = *std::move(parsed), checked = std::move(checked),
                 reply = std::move(reply)](absl::Time now) {
    executor.Defer([reply, answer = MoveToBlob(broadcast, checked, now)](const absl::Status& commit) {
      reply(commit.ok() ? answer : commit);
    });
  });
}

absl::StatusOr<std::vector<std::string>> BlobHandlers::CheckUploadedBroadcast(const UploadId& id) {
  const absl::StatusOr<std::shared_ptr<const BlobView>> upload = payloads_.OpenUpload(id);
  // Another call has just moved it, after the same check.
  if (absl::IsNotFound(upload.status())) return std::vector<std::string>();
  RETURN_IF_ERROR(upload.status());
  absl::StatusOr<std::vector<std::string>> bases = core_.open_blobs().Check(**upload);
  if (!absl::IsInvalidArgument(bases.status()) && !absl::IsResourceExhausted(bases.status())) return bases;
  // It will be no better when it is asked for again.
  RETURN_IF_ERROR(payloads_.DeleteUpload(id));
  return bases;
}

absl::StatusOr<v1::FinishUploadResponse> BlobHandlers::MoveToBlob(
    const UploadName& broadcast, const absl::StatusOr<std::vector<std::string>>& checked, absl::Time now) {
  const absl::Status moved = checked.ok() ? payloads_.MoveUploadToBlob(broadcast.id) : checked.status();
  // The answer to an earlier call was lost: the upload is the blob by now.
  const bool was_moved = absl::IsNotFound(moved) && payloads_.HasBlob(broadcast.digest);
  if (!was_moved) RETURN_IF_ERROR(moved);
  // What was moved before was noted before.
  if (!was_moved) {
    if (absl::Status noted = core_.broadcasts().Note(broadcast.digest, *checked); !noted.ok()) {
      // Else it is looked at again when it is named.
      if (absl::IsInvalidArgument(noted)) RETURN_IF_ERROR(core_.broadcasts().Delete(broadcast.digest, now));
      return noted;
    }
  }
  core_.broadcasts().Touch(broadcast.digest, core_.limits().unreferenced_keep, now);
  return Finished(core_.limits());
}

absl::Status BlobHandlers::CheckWhole(const std::string& digest) {
  ASSIGN_OR_RETURN(const std::vector<std::string> bases, core_.open_blobs().FindBases(digest));
  if (bases.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("broadcast {} is a patch of {}, and this worker reads only whole ones: update it, or have the "
                  "program send whole broadcasts",
                  digest, bases.front()));
}

absl::StatusOr<v1::ReadBlobResponse> BlobHandlers::ReadBlob(const v1::ReadBlobRequest& request,
                                                            int64_t answer_bytes_max) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const OpenBlob> blob, core_.open_blobs().Open(request.digest()));
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

absl::StatusOr<v1::SelectRowsResponse> BlobHandlers::SelectRows(const v1::SelectRowsRequest& request,
                                                                int64_t answer_bytes_max) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const OpenBlob> blob, core_.open_blobs().OpenTensors(request.digest()));
  absl::StatusOr<v1::SelectRowsResponse> rows =
      SelectRowsOf(blob->header(), blob->content(), request, answer_bytes_max);
  // A row that is too large for the room there is goes as long as it is not too large for a whole chunk.
  const int64_t chunk = core_.limits().chunk_bytes_max;
  if (absl::IsResourceExhausted(rows.status()) && answer_bytes_max < chunk) {
    rows = SelectRowsOf(blob->header(), blob->content(), request, chunk);
  }
  return rows;
}

}  // namespace sheaf
