#include "server/core/uploads/upload_quota.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "server/core/limits/population_share.h"

namespace sheaf {
namespace {

// One identity may have a part of what the others leave. Its first upload goes as long as there is room at all, because
// one may be as large as all that is shared.
absl::Status CheckShare(const PayloadStore::UploadUse& use, const NewUpload& upload, const Identity& caller,
                        const Limits& limits) {
  // Without tokens there is nobody to share with.
  if (caller.name.empty() || use.num_matching == 0) return absl::OkStatus();
  const auto check = [&](int64_t Limits::*limit, int64_t all, int64_t own, int64_t more) -> absl::Status {
    PopulationShare share;
    share.Add("", all - own);
    share.Add(caller.name, own);
    if (own + more <= share.Max(caller.name, limits.*limit, limits.population_percent_max)) return absl::OkStatus();
    return limits.RefuseShare(
        limit, fmt::format("the uploads of {} have {}, and {} more would be over", caller.name, own, more));
  };
  RETURN_IF_ERROR(check(&Limits::uploads_max, use.num_uploads, use.num_matching, 1));
  return upload.is_in_memory
             ? check(&Limits::memory_upload_bytes_max, use.memory_bytes, use.matching_memory_bytes, upload.size_bytes)
             : check(&Limits::upload_bytes_max, use.disk_bytes, use.matching_disk_bytes, upload.size_bytes);
}

}  // namespace

absl::Status CheckUploadQuota(PayloadStore& payloads, const NewUpload& upload, const Identity& caller,
                              const Limits& limits) {
  // One that goes on takes no more than it has.
  if (payloads.GetUpload(upload.id).ok()) return absl::OkStatus();
  const PayloadStore::UploadUse use = payloads.GetUploadUse(caller.upload_tag);
  if (use.num_uploads >= limits.uploads_max) {
    return limits.Refuse(&Limits::uploads_max, fmt::format("{} uploads are under way,", use.num_uploads));
  }
  if (use.num_matching >= limits.uploads_per_identity_max) {
    return limits.Refuse(&Limits::uploads_per_identity_max,
                         fmt::format("{} has {} uploads under way,", caller.name.empty() ? "this machine" : caller.name,
                                     use.num_matching));
  }
  RETURN_IF_ERROR(CheckShare(use, upload, caller, limits));
  if (upload.is_in_memory && upload.size_bytes > limits.memory_upload_bytes_max - use.memory_bytes) {
    return limits.Refuse(
        &Limits::memory_upload_bytes_max,
        fmt::format("the uploads to EPHEMERAL rounds have {} bytes in memory, and {} more would be over",
                    use.memory_bytes, upload.size_bytes));
  }
  if (!upload.is_in_memory && upload.size_bytes > limits.upload_bytes_max - use.disk_bytes) {
    return limits.Refuse(&Limits::upload_bytes_max,
                         fmt::format("the uploads under way announce {} bytes, and {} more would be over",
                                     use.disk_bytes, upload.size_bytes));
  }
  return absl::OkStatus();
}

}  // namespace sheaf
