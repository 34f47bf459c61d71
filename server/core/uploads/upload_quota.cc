#include "server/core/uploads/upload_quota.h"

#include <fmt/format.h>

#include <string_view>

#include "absl/time/time.h"
#include "base/retry_hint.h"
#include "base/status_macros.h"
#include "server/core/limits/population_share.h"

namespace sheaf {
namespace {

// Uploads take seconds.
constexpr absl::Duration kComeBackAfter = absl::Seconds(2);

// One identity may have a part of what the others leave. Its first upload goes as long as there is room at all, because
// one may be as large as all that is shared.
absl::Status CheckShare(const PayloadStore::UploadUse& use, const NewUpload& upload, const Identity& caller,
                        const Limits& limits) {
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
  return upload.is_in_memory ? check("memory_upload_bytes_max", use.memory_bytes, use.matching_memory_bytes,
                                     upload.size_bytes, limits.memory_upload_bytes_max)
                             : check("upload_bytes_max", use.disk_bytes, use.matching_disk_bytes, upload.size_bytes,
                                     limits.upload_bytes_max);
}

}  // namespace

absl::Status CheckUploadQuota(PayloadStore& payloads, const NewUpload& upload, const Identity& caller,
                              const Limits& limits) {
  // One that goes on takes no more than it has.
  if (payloads.GetUpload(upload.id).ok()) return absl::OkStatus();
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
  RETURN_IF_ERROR(CheckShare(use, upload, caller, limits));
  if (upload.is_in_memory && upload.size_bytes > limits.memory_upload_bytes_max - use.memory_bytes) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(fmt::format(
            "the uploads to EPHEMERAL rounds have {} bytes in memory, and {} more would be over "
            "memory_upload_bytes_max = {}; try again when some are folded, or raise --memory-upload-bytes-max",
            use.memory_bytes, upload.size_bytes, limits.memory_upload_bytes_max)),
        kComeBackAfter);
  }
  if (!upload.is_in_memory && upload.size_bytes > limits.upload_bytes_max - use.disk_bytes) {
    return WithRetryAfter(
        absl::ResourceExhaustedError(
            fmt::format("the uploads under way announce {} bytes, and {} more would be over upload_bytes_max = {}; "
                        "try again when some are finished, or raise --upload-bytes-max",
                        use.disk_bytes, upload.size_bytes, limits.upload_bytes_max)),
        kComeBackAfter);
  }
  return absl::OkStatus();
}

}  // namespace sheaf
