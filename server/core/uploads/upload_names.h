// Uploads are named by who asks for what, so that asking again finds the same one: "b-<digest>-<caller>" for a
// broadcast, "c-<digest>-<lease>" for a contribution, where the last part is the head of a hash and ends in the tag of
// the identity that asked. The first part says which shard they are in (storage/shard.h).
//
//   UploadId id = BroadcastUploadId(kHomeShard, request.digest(), request.request_id(), caller);
//   // What comes from outside becomes part of a path.
//   ASSIGN_OR_RETURN(UploadName name, ParseUploadName(upload_id));
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/core/access/identity.h"
#include "storage/ids.h"
#include "storage/shard.h"

namespace sheaf {

// `digest` is a SHA-256 in hex.
UploadId BroadcastUploadId(Shard shard, const std::string& digest, const std::string& request_id,
                           const Identity& caller);
UploadId ContributionUploadId(Shard shard, const std::string& digest, const TaskId& task, const LeaseToken& token,
                              const Identity& caller);

struct UploadName {
  UploadId id;
  bool is_broadcast = false;
  std::string digest;
};
// It may name the upload of a contribution, and names none of a broadcast.
bool IsContributionUpload(std::string_view text);
// NOT_FOUND if no upload can have this name.
absl::StatusOr<UploadName> ParseUploadName(const std::string& text);

}  // namespace sheaf
