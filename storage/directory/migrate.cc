#include "storage/directory/migrate.h"

#include <fmt/format.h>

#include <memory>

#include "base/status_macros.h"
#include "storage/directory/database_copy.h"
#include "storage/directory/open.h"
#include "storage/sql/migrator.h"
#include "storage/sqlite/sqlite_connection.h"

namespace sheaf {

absl::StatusOr<StoreMigration> MigrateStore(const MigrateParams& params) {
  // First, so that looking at a directory that is no store makes no lock in it.
  StoreMigration migration;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<StoreHold> hold, StoreHold::Take(params.directory));
    ASSIGN_OR_RETURN(const DatabaseCopy copy,
                     CopyDatabase(*hold, params.directory, params.scratch + "/tasks.db", CopyUse::kLook));
    migration.from = copy.schema_version;
    migration.to = copy.newest_version;
  }
  for (const Migration& step : SqliteMigrations()) {
    if (step.version > migration.from) migration.steps.emplace_back(step.name);
  }
  if (params.is_dry_run) return migration;
  if (const std::string holder = DirectoryLock::HolderOf(params.directory); !holder.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("{} works on the store in {}: stop it first", holder, params.directory));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<DirectoryLock> lock, DirectoryLock::Take(params.directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<StoreHold> hold, StoreHold::Take(params.directory));
  ASSIGN_OR_RETURN(const std::unique_ptr<SqliteConnection> connection,
                   SqliteConnection::Open(params.directory + "/tasks.db"));
  RETURN_IF_ERROR(Migrate(*connection, SqliteMigrations()));
  return migration;
}

}  // namespace sheaf
