#include "server/core/uploads/uploads.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "server/core/requests/paging.h"
#include "server/core/uploads/upload_names.h"
#include "server/core/uploads/upload_quota.h"
#include "server/core/uploads/upload_size.h"
#include "server/core/uploads/wanted_uploads.h"

namespace sheaf {
namespace {

// An upload is as old as the first look after it was last used, and goes at a look: it lives longer by two of these.
constexpr absl::Duration kLookInterval = absl::Minutes(1);

v1::StartUploadResponse Answer(v1::StartUploadResponse::Verdict verdict) {
  v1::StartUploadResponse response;
  response.set_verdict(verdict);
  return response;
}

absl::Status CheckNames(const v1::StartUploadRequest& request) {
  if (!IsSha256Hex(request.digest())) {
    return absl::InvalidArgumentError(
        fmt::format("digest \"{}\" is not a SHA-256 in lower-case hex", request.digest().substr(0, 128)));
  }
  return CheckRequestId(request.request_id());
}

}  // namespace

absl::StatusOr<v1::StartUploadResponse> Uploads::Start(const v1::StartUploadRequest& request, const Identity& caller,
                                                       absl::Time now) {
  RETURN_IF_ERROR(CheckNames(request));
  RETURN_IF_ERROR(CheckUploadSize(request, context_.limits));
  return request.has_contribution() ? StartContribution(request, caller) : StartBroadcast(request, caller, now);
}

absl::StatusOr<v1::StartUploadResponse> Uploads::StartContribution(const v1::StartUploadRequest& request,
                                                                   const Identity& caller) {
  const v1::ContributionUpload& contribution = request.contribution();
  const std::optional<TaskId> task = TaskId::Parse(contribution.task());
  if (!task) {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is not a task, such as r-7k2m9q4x/17", contribution.task().substr(0, 128)));
  }
  const LeaseToken token(contribution.lease_token());
  ASSIGN_OR_RETURN(const UploadWish wish,
                   AskForUpload(context_.store, rounds_,
                                {.task = *task, .token = token, .size_bytes = request.size_bytes()}, caller));
  switch (wish) {
    case UploadWish::kNotNeeded:
      return Answer(v1::StartUploadResponse::NOT_NEEDED);
    case UploadWish::kLeaseLost:
      return Answer(v1::StartUploadResponse::LEASE_LOST);
    case UploadWish::kToDisk:
    case UploadWish::kToMemory:
      break;
  }
  return Begin(ContributionUploadId(context_.shard, request.digest(), *task, token, caller), request, wish == UploadWish::kToMemory,
               caller);
}

absl::StatusOr<v1::StartUploadResponse> Uploads::StartBroadcast(const v1::StartUploadRequest& request,
                                                                const Identity& caller, absl::Time now) {
  if (context_.payloads.HasBlob(request.digest())) {
    broadcasts_.Touch(request.digest(), context_.limits.broadcast_linger, now);
    v1::StartUploadResponse stored = Answer(v1::StartUploadResponse::ALREADY_STORED);
    stored.set_takes_patches(true);
    return stored;
  }
  constexpr bool kOnDisk = false;
  ASSIGN_OR_RETURN(
      v1::StartUploadResponse begun,
      Begin(BroadcastUploadId(context_.shard, request.digest(), request.request_id(), caller), request, kOnDisk, caller));
  begun.set_takes_patches(true);
  return begun;
}

absl::StatusOr<v1::StartUploadResponse> Uploads::Begin(const UploadId& id, const v1::StartUploadRequest& request,
                                                       bool is_in_memory, const Identity& caller) {
  PayloadStore& payloads = context_.payloads;
  const int64_t size_bytes = request.size_bytes();
  RETURN_IF_ERROR(CheckUploadQuota(payloads, {.id = id, .size_bytes = size_bytes, .is_in_memory = is_in_memory}, caller,
                                   context_.limits));
  ASSIGN_OR_RETURN(const PayloadStore::Upload upload, is_in_memory
                                                          ? payloads.StartMemoryUpload(id, size_bytes, request.digest())
                                                          : payloads.StartUpload(id, size_bytes, request.digest()));
  v1::StartUploadResponse response = Answer(v1::StartUploadResponse::SEND);
  response.set_upload_id(upload.id.value());
  response.set_committed_bytes(upload.committed_bytes);
  response.set_chunk_bytes_max(context_.limits.chunk_bytes_max);
  return response;
}

void Uploads::Tick(absl::Time now) {
  if (now < NextTick()) return;
  is_looking_ = true;
  // Who used an upload between two looks that came late, or while the machine slept, did so at a time that nobody
  // knows.
  const absl::Duration passed = std::clamp(now - last_look_, absl::ZeroDuration(), 2 * kLookInterval);
  look_time_ = look_time_ == absl::InfinitePast() ? now : look_time_ + passed;
  last_look_ = now;
  context_.receptions.Run("stale uploads", [this, time = look_time_] {
    context_.payloads.DeleteStaleUploads(time, context_.limits.unreferenced_keep);
    context_.executor.Post([this](absl::Time) { is_looking_ = false; });
  });
}

absl::Time Uploads::NextTick() const { return is_looking_ ? absl::InfiniteFuture() : last_look_ + kLookInterval; }

}  // namespace sheaf
