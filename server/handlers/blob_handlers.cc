#include "server/handlers/blob_handlers.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/checksum.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/broadcasts/broadcast_check.h"
#include "server/core/broadcasts/row_selection.h"
#include "server/core/core.h"
#include "server/core/limits/population_share.h"

namespace sheaf {
namespace {

// Uploads take seconds.
constexpr absl::Duration kComeBackAfter = absl::Seconds(2);

absl::Status CheckStart(const v1::StartUploadRequest& request, const Limits& limits) {
  if (!IsSha256Hex(request.digest())) {
    return absl::InvalidArgumentError(
        fmt::format("digest \"{}\" is not a SHA-256 in lower-case hex", request.digest().substr(0, 128)));
  }
  if (request.size_bytes() <= 0) {
    return absl::InvalidArgumentError(
        fmt::format("size_bytes is {}; an upload has at least one byte", request.size_bytes()));
  }
  if (request.request_id().empty() || request.request_id().size() > 64) {
    return absl::InvalidArgumentError("request_id must have 1 to 64 characters");
  }
  const bool is_broadcast = !request.has_contribution();
  const int64_t size_max = is_broadcast ? limits.broadcast_bytes_max : limits.contribution_bytes_max;
  if (request.size_bytes() > size_max) {
    return absl::ResourceExhaustedError(
        fmt::format("{} bytes are over the server's {} = {}; send less, or raise {}", request.size_bytes(),
                    is_broadcast ? "broadcast_bytes_max" : "contribution_bytes_max", size_max,
                    is_broadcast ? "--broadcast-bytes-max" : "--contribution-bytes-max"));
  }
  return absl::OkStatus();
}

v1::StartUploadResponse Answer(v1::StartUploadResponse::Verdict verdict) {
  v1::StartUploadResponse response;
  response.set_verdict(verdict);
  return response;
}

// One identity may have a part of what the others leave. Its first upload goes as long as there is room at all, because
// one may be as large as all that is shared.
absl::Status CheckShare(const PayloadStore::UploadUse& use, int64_t size_bytes, bool is_in_memory,
                        const Identity& caller, const Limits& limits) {
  // Without tokens there is nobody to share with.
  if (caller.name.empty() || use.num_matching == 0) return absl::OkStatus();
  const auto check = [&](std::string_view name, int64_t all, int64_t own, int64_t more, int64_t max) -> absl::Status {
    PopulationShare share;
    share.Add("", all - own);
    share.Add(caller.name, own);
    if (own + more <= share.Max(caller.name, max, limits.population_percent_max)) return absl::OkStatus();
    return WithRetryAfter(
        absl::ResourceExhaustedError(fmt::format("the uploads of {} have {} of {} = {}, and {} more would be over "
                                                 "population_percent_max = {} % of what others "
                                                 "leave; finish some first",
                                                 caller.name, own, name, max, more, limits.population_percent_max)),
        kComeBackAfter);
  };
  RETURN_IF_ERROR(check("uploads_max", use.num_uploads, use.num_matching, 1, limits.uploads_max));
  return is_in_memory
             ? check("memory_upload_bytes_max", use.memory_bytes, use.matching_memory_bytes, size_bytes,
                     limits.memory_upload_bytes_max)
             : check("upload_bytes_max", use.disk_bytes, use.matching_disk_bytes, size_bytes, limits.upload_bytes_max);
}

absl::Status CheckRoom(PayloadStore& payloads, const UploadId& id, const v1::StartUploadRequest& request,
                       bool is_in_memory, const Identity& caller, const Limits& limits) {
  // One that goes on takes no more than it has.
  if (payloads.GetUpload(id).ok()) return absl::OkStatus();
  const PayloadStore::UploadUse use = payloads.GetUploadUse(caller.upload_tag);
  if (use.num_uploads >= limits.uploads_max) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(fmt::format("{} uploads are under way, uploads_max = {}; try again when some are "
                                                 "finished or, without a byte for unreferenced_keep, forgotten",
                                                 use.num_uploads, limits.uploads_max)),
        kComeBackAfter);
  }
  if (use.num_matching >= limits.uploads_per_identity_max) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(fmt::format(
            "{} has {} uploads under way, uploads_per_identity_max = {}; finish some first, or raise "
            "--uploads-per-identity-max",
            caller.name.empty() ? "this machine" : caller.name, use.num_matching, limits.uploads_per_identity_max)),
        kComeBackAfter);
  }
  RETURN_IF_ERROR(CheckShare(use, request.size_bytes(), is_in_memory, caller, limits));
  if (is_in_memory && request.size_bytes() > limits.memory_upload_bytes_max - use.memory_bytes) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(fmt::format(
            "the uploads to EPHEMERAL rounds have {} bytes in memory, and {} more would be over "
            "memory_upload_bytes_max = {}; try again when some are folded, or raise --memory-upload-bytes-max",
            use.memory_bytes, request.size_bytes(), limits.memory_upload_bytes_max)),
        kComeBackAfter);
  }
  if (!is_in_memory && request.size_bytes() > limits.upload_bytes_max - use.disk_bytes) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(
            fmt::format("the uploads under way announce {} bytes, and {} more would be over upload_bytes_max = {}; "
                        "try again when some are finished, or raise --upload-bytes-max",
                        use.disk_bytes, request.size_bytes(), limits.upload_bytes_max)),
        kComeBackAfter);
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::StartUploadResponse> Started(const absl::StatusOr<PayloadStore::Upload>& upload,
                                                const Limits& limits) {
  RETURN_IF_ERROR(upload.status());
  v1::StartUploadResponse response = Answer(v1::StartUploadResponse::SEND);
  response.set_upload_id(upload->id.value());
  response.set_committed_bytes(upload->committed_bytes);
  response.set_chunk_bytes_max(limits.chunk_bytes_max);
  return response;
}

v1::FinishUploadResponse Finished(const Limits& limits) {
  v1::FinishUploadResponse response;
  *response.mutable_keep() = ToProto(limits.unreferenced_keep);
  return response;
}

absl::StatusOr<v1::StartUploadResponse> StartContribution(Core& core, PayloadStore& payloads,
                                                          const v1::StartUploadRequest& request,
                                                          const Identity& caller) {
  const v1::ContributionUpload& contribution = request.contribution();
  const std::optional<TaskId> task = TaskId::Parse(contribution.task());
  if (!task) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is not a task, such as r-7k2m9q4x/17", contribution.task().substr(0, 128)));
  }
  ASSIGN_OR_RETURN(const Core::UploadAnswer answer,
                   core.AskUpload(*task, LeaseToken(contribution.lease_token()), request.size_bytes(), caller));
  switch (answer) {
    case Core::UploadAnswer::kNotNeeded:
      return Answer(v1::StartUploadResponse::NOT_NEEDED);
    case Core::UploadAnswer::kLeaseLost:
      return Answer(v1::StartUploadResponse::LEASE_LOST);
    case Core::UploadAnswer::kSendToDisk:
    case Core::UploadAnswer::kSendToMemory:
      break;
  }
  const UploadId id = ContributionUploadId(request.digest(), *task, LeaseToken(contribution.lease_token()), caller);
  const bool is_in_memory = answer == Core::UploadAnswer::kSendToMemory;
  RETURN_IF_ERROR(CheckRoom(payloads, id, request, is_in_memory, caller, core.limits()));
  return Started(is_in_memory ? payloads.StartMemoryUpload(id, request.size_bytes(), request.digest())
                              : payloads.StartUpload(id, request.size_bytes(), request.digest()),
                 core.limits());
}

}  // namespace

BlobHandlers::BlobHandlers(Core& core, PayloadStore& payloads)
    : core_(core), payloads_(payloads), open_blobs_(payloads, core.limits()) {}

void BlobHandlers::StartUpload(const v1::StartUploadRequest& request, const CallContext& call,
                               Reply<v1::StartUploadResponse> reply) {
  if (absl::Status status = CheckStart(request, core_.limits()); !status.ok()) return reply(std::move(status));
  if (request.has_contribution()) return reply(StartContribution(core_, payloads_, request, *call.caller));
  if (payloads_.HasBlob(request.digest())) {
    core_.rounds().TouchBroadcast(request.digest(), core_.limits().broadcast_linger, call.now);
    return reply(Answer(v1::StartUploadResponse::ALREADY_STORED));
  }
  const UploadId id = BroadcastUploadId(request.digest(), request.request_id(), *call.caller);
  if (absl::Status room = CheckRoom(payloads_, id, request, false, *call.caller, core_.limits()); !room.ok()) {
    return reply(std::move(room));
  }
  reply(Started(payloads_.StartUpload(id, request.size_bytes(), request.digest()), core_.limits()));
}

absl::StatusOr<v1::WriteChunkResponse> BlobHandlers::WriteChunk(const v1::WriteChunkRequest& request) {
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
  v1::WriteChunkResponse response;
  ASSIGN_OR_RETURN(const int64_t committed, payloads_.WriteChunk(parsed.id, request.offset(), request.data()));
  response.set_committed_bytes(committed);
  return response;
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
  absl::Status finished = payloads_.FinishUpload(parsed->id);
  if (finished.ok() && parsed->is_broadcast) {
    finished = CheckUploadedBroadcast(parsed->id);
    if (!finished.ok()) return reply(finished);
  }
  if (!parsed->is_broadcast) {
    if (!finished.ok()) return reply(finished);
    return reply(Finished(core_.limits()));
  }
  Executor& executor = core_.context().executor;
  executor.Post([this, &executor, broadcast = *std::move(parsed), finished, reply = std::move(reply)](absl::Time now) {
    executor.Defer([reply, answer = MoveToBlob(broadcast, finished, now)](const absl::Status& commit) {
      reply(commit.ok() ? answer : commit);
    });
  });
}

absl::Status BlobHandlers::CheckUploadedBroadcast(const UploadId& id) {
  const absl::StatusOr<std::shared_ptr<const BlobView>> upload = payloads_.OpenUpload(id);
  // Another call has just moved it, after the same check.
  if (absl::IsNotFound(upload.status())) return absl::OkStatus();
  RETURN_IF_ERROR(upload.status());
  const absl::Status status = CheckBroadcast(**upload, core_.limits());
  if (!absl::IsInvalidArgument(status) && !absl::IsResourceExhausted(status)) return status;
  // It will be no better when it is asked for again.
  RETURN_IF_ERROR(payloads_.DeleteUpload(id));
  return status;
}

absl::StatusOr<v1::FinishUploadResponse> BlobHandlers::MoveToBlob(const UploadName& broadcast,
                                                                  const absl::Status& finished, absl::Time now) {
  const absl::Status moved = finished.ok() ? payloads_.MoveUploadToBlob(broadcast.id) : finished;
  // The answer to an earlier call was lost: the upload is the blob by now.
  const bool was_moved = absl::IsNotFound(moved) && payloads_.HasBlob(broadcast.digest);
  if (!was_moved) RETURN_IF_ERROR(moved);
  core_.rounds().TouchBroadcast(broadcast.digest, core_.limits().unreferenced_keep, now);
  return Finished(core_.limits());
}

absl::StatusOr<v1::ReadBlobResponse> BlobHandlers::ReadBlob(const v1::ReadBlobRequest& request,
                                                            int64_t answer_bytes_max) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const OpenBlob> blob, open_blobs_.Open(request.digest()));
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
  ASSIGN_OR_RETURN(const std::shared_ptr<const OpenBlob> blob, open_blobs_.OpenTensors(request.digest()));
  absl::StatusOr<v1::SelectRowsResponse> rows = SelectRowsOf(blob->header(), blob->bytes(), request, answer_bytes_max);
  // A row that is too large for the room there is goes as long as it is not too large for a whole chunk.
  const int64_t chunk = core_.limits().chunk_bytes_max;
  if (absl::IsResourceExhausted(rows.status()) && answer_bytes_max < chunk) {
    rows = SelectRowsOf(blob->header(), blob->bytes(), request, chunk);
  }
  return rows;
}

}  // namespace sheaf
