// Uploads: how a contribution or a broadcast that comes in pieces begins: whether it is wanted at all
// (wanted_uploads.h), how large it may be (upload_size.h), whether there is room (upload_quota.h), and its name
// (upload_names.h). The pieces then go to the payload store, past the core.
//
//   ASSIGN_OR_RETURN(v1::StartUploadResponse response, uploads.Start(request, caller, now));
//   uploads.Tick(now);                       // Deletes what nobody goes on with.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/access/identity.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"
#include "server/core/rounds/live_rounds.h"
#include "sheaf/v1/blob_service.pb.h"

namespace sheaf {

class Uploads {
 public:
  // All outlive this.
  Uploads(CoreContext& context, LiveRounds& rounds, Broadcasts& broadcasts)
      : context_(context), rounds_(rounds), broadcasts_(broadcasts) {}

  // See BlobService.StartUpload. Asking again finds the same upload.
  absl::StatusOr<v1::StartUploadResponse> Start(const v1::StartUploadRequest& request, const Identity& caller,
                                                absl::Time now);

  // Uploads that nobody has used for unreferenced_keep are deleted, beside the core. Time in which nobody could look
  // does not count.
  void Tick(absl::Time now);
  absl::Time NextTick() const;

 private:
  absl::StatusOr<v1::StartUploadResponse> StartContribution(const v1::StartUploadRequest& request,
                                                            const Identity& caller);
  absl::StatusOr<v1::StartUploadResponse> StartBroadcast(const v1::StartUploadRequest& request, const Identity& caller,
                                                         absl::Time now);
  // If there is room for it.
  absl::StatusOr<v1::StartUploadResponse> Begin(const UploadId& id, const v1::StartUploadRequest& request,
                                                bool is_in_memory, const Identity& caller);

  CoreContext& context_;
  LiveRounds& rounds_;
  Broadcasts& broadcasts_;
  // A look is being made; when the newest began, and the time that it was told.
  bool is_looking_ = false;
  absl::Time last_look_ = absl::InfinitePast();
  absl::Time look_time_ = absl::InfinitePast();
};

}  // namespace sheaf
