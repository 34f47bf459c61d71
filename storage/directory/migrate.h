// MigrateStore: brings a store to this build's schema, while no server runs on it. sheafd does the same when it starts;
// here it is done, or only said, on purpose.
//
//   ASSIGN_OR_RETURN(StoreMigration done, MigrateStore({.directory = "/var/lib/sheaf", .scratch = scratch}));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

struct StoreMigration {
  int from = 0;
  int to = 0;
  // In order; none if the store is up to date.
  std::vector<std::string> steps;
};

struct MigrateParams {
  std::string directory;
  // Where a copy is migrated first, with `is_dry_run` only there.
  std::string scratch;
  bool is_dry_run = false;
};

// FAILED_PRECONDITION if a process uses the store (named), or a newer build wrote it (both versions named). All or
// nothing.
absl::StatusOr<StoreMigration> MigrateStore(const MigrateParams& params);

}  // namespace sheaf
