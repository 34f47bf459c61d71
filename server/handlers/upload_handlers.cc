#include "server/handlers/upload_handlers.h"

#include <string>
#include <utility>

#include "base/status_macros.h"
#include "proto/time.h"
#include "server/core/broadcasts/open_blobs.h"
#include "server/core/core.h"

namespace sheaf {
namespace {

v1::FinishUploadResponse Finished(const Limits& limits) {
  v1::FinishUploadResponse response;
  *response.mutable_keep() = ToProto(limits.unreferenced_keep);
  return response;
}

}  // namespace

UploadHandlers::UploadHandlers(Core& core, PayloadStore& payloads) : core_(core), payloads_(payloads) {}

void UploadHandlers::StartUpload(const v1::StartUploadRequest& request, const CallContext& call,
                                 Reply<v1::StartUploadResponse> reply) {
  reply(core_.uploads().Start(request, *call.caller, call.now));
}

void UploadHandlers::FinishUpload(const v1::FinishUploadRequest& request, Reply<v1::FinishUploadResponse> reply) {
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

absl::StatusOr<std::vector<std::string>> UploadHandlers::CheckUploadedBroadcast(const UploadId& id) {
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

absl::StatusOr<v1::FinishUploadResponse> UploadHandlers::MoveToBlob(
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

}  // namespace sheaf
