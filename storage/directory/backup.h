// BackUpStore and RestoreStore: a store in another directory, and back.
//
//   ASSIGN_OR_RETURN(BackupSummary made,
//                    BackUpStore({.store = "/var/lib/sheaf", .to = "/backup/monday", .now = clock.Now()}));
//   ASSIGN_OR_RETURN(BackupSummary restored, RestoreStore({.backup = "/backup/monday", .to = "/var/lib/sheaf"}));
//
// A backup is a store of its own, as of one moment, and the file MANIFEST, which `sha256sum -c` understands too. It is
// made while a server works on the store, or while none does: the database as of one moment, then the spooled
// contributions, checkpoints and blobs that belong to it, which nobody deletes meanwhile (store_hold.h). Unfinished
// uploads are not in it: whoever sends them begins again.
//
// Both write beside, flush, verify what they wrote, and rename it to its name last: what has that name is whole.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf {

struct BackupSummary {
  int64_t num_files = 0;
  int64_t num_bytes = 0;
  // Rounds that had not ended, and accepted contributions that no checkpoint contained.
  int64_t num_live_rounds = 0;
  int64_t num_pending = 0;
  int schema_version = 0;
  // When the backup was made, ISO 8601.
  std::string time;
};

struct BackUpParams {
  std::string store;
  // New, or an empty directory. Its parent must be there.
  std::string to;
  absl::Time now;
};
// FAILED_PRECONDITION if `to` is there and not empty; DATA_LOSS if the store is damaged; RESOURCE_EXHAUSTED; NOT_FOUND.
// On error nothing is left.
absl::StatusOr<BackupSummary> BackUpStore(const BackUpParams& params);

struct RestoreParams {
  std::string backup;
  // As for a backup.
  std::string to;
};
// The same codes; DATA_LOSS names the file of the backup that is missing or changed.
absl::StatusOr<BackupSummary> RestoreStore(const RestoreParams& params);

}  // namespace sheaf
