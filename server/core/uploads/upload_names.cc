#include "server/core/uploads/upload_names.h"

#include <fmt/format.h>

#include <string_view>

#include "base/checksum.h"

namespace sheaf {
namespace {

constexpr char kBroadcastKind = 'b';
constexpr char kContributionKind = 'c';
constexpr size_t kDigestLength = 64;
// Half of a SHA-256.
constexpr size_t kOwnerLength = 32;

UploadId MakeUploadId(const std::string& prefix, const std::string& digest, const std::string& owner,
                      const Identity& caller) {
  const std::string hash = Sha256Hex(owner).substr(0, kOwnerLength - caller.upload_tag.size());
  return UploadId(fmt::format("{}{}-{}{}", prefix, digest, hash, caller.upload_tag));
}

bool IsOfKind(std::string_view text, char kind) { return text.starts_with(NamePrefix(kind, ShardOf(text))); }

}  // namespace

UploadId BroadcastUploadId(Shard shard, const std::string& digest, const std::string& request_id,
                           const Identity& caller) {
  return MakeUploadId(NamePrefix(kBroadcastKind, shard), digest, request_id, caller);
}

UploadId ContributionUploadId(Shard shard, const std::string& digest, const TaskId& task, const LeaseToken& token,
                              const Identity& caller) {
  return MakeUploadId(NamePrefix(kContributionKind, shard), digest, fmt::format("{}\n{}", task.ToString(), token),
                      caller);
}

bool IsContributionUpload(std::string_view text) { return IsOfKind(text, kContributionKind); }

absl::StatusOr<UploadName> ParseUploadName(const std::string& text) {
  const bool is_broadcast = IsOfKind(text, kBroadcastKind);
  const bool is_known = is_broadcast || IsContributionUpload(text);
  const size_t prefix_length = NamePrefix(kBroadcastKind, ShardOf(text)).size();
  if (is_known && text.size() == prefix_length + kDigestLength + 1 + kOwnerLength) {
    const std::string digest = text.substr(prefix_length, kDigestLength);
    const std::string owner = text.substr(prefix_length + kDigestLength);
    // Twice the owner is as long as a SHA-256, and must look like one.
    if (IsSha256Hex(digest) && owner.starts_with('-') && IsSha256Hex(owner.substr(1) + owner.substr(1))) {
      return UploadName{.id = UploadId(text), .is_broadcast = is_broadcast, .digest = digest};
    }
  }
  return absl::NotFoundError(fmt::format("there is no upload \"{}\"; start one", text.substr(0, 128)));
}

}  // namespace sheaf
