#include "storage/sql/migrator.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "storage/migrations/sqlite/0001_initial.sql.h"
#include "storage/migrations/sqlite/0002_checkpoint_progress_and_aggregate_digest.sql.h"
#include "storage/migrations/sqlite/0003_leases_without_indexes.sql.h"
#include "storage/migrations/sqlite/0004_retention.sql.h"
#include "storage/migrations/sqlite/0005_tokens.sql.h"
#include "storage/migrations/sqlite/0006_refusals_without_quotes.sql.h"
#include "storage/migrations/sqlite/0007_large_rounds.sql.h"
#include "storage/migrations/sqlite/0008_second_leases.sql.h"
#include "storage/migrations/sqlite/0009_carried_tasks.sql.h"

namespace sheaf {
namespace {

constexpr Migration kSqliteMigrations[] = {
    {.version = 1, .minimum_compatible_version = 1, .name = "initial", .sql = kSqlite0001Initial},
    // An older build would write checkpoints without their progress.
    {.version = 2,
     .minimum_compatible_version = 2,
     .name = "checkpoint_progress_and_aggregate_digest",
     .sql = kSqlite0002CheckpointProgress},
    // An older build only gets slower.
    {.version = 3,
     .minimum_compatible_version = 2,
     .name = "leases_without_indexes",
     .sql = kSqlite0003LeasesWithoutIndexes},
    // An older build would give keys of deleted rounds again.
    {.version = 4, .minimum_compatible_version = 4, .name = "retention", .sql = kSqlite0004Retention},
    // An older build knows no tokens: it would let everybody in.
    {.version = 5, .minimum_compatible_version = 5, .name = "tokens", .sql = kSqlite0005Tokens},
    // An older build may go on with it; what it refuses, it quotes again.
    {.version = 6,
     .minimum_compatible_version = 5,
     .name = "refusals_without_quotes",
     .sql = kSqlite0006RefusalsWithoutQuotes},
    // An older build would show tasks of rounds that have ended as QUEUED.
    {.version = 7, .minimum_compatible_version = 7, .name = "large_rounds", .sql = kSqlite0007LargeRounds},
    // An older build would leave second leases behind, of tasks that it leases again.
    {.version = 8, .minimum_compatible_version = 8, .name = "second_leases", .sql = kSqlite0008SecondLeases},
    // An older build would lease tasks again that were carried over.
    {.version = 9, .minimum_compatible_version = 9, .name = "carried_tasks", .sql = kSqlite0009CarriedTasks},
};

enum class Databases { kAll, kEmpty };

struct SchemaVersion {
  int64_t version = 0;
  int64_t minimum_compatible = 0;
};

absl::StatusOr<SchemaVersion> ReadSchemaVersion(SqlConnection& connection) {
  SchemaVersion schema;
  RETURN_IF_ERROR(connection
                      .Execute("-- read_schema\nSELECT version, minimum_compatible_version FROM schema", {},
                               [&](const SqlRow& row) {
                                 schema = {.version = row.Int(0), .minimum_compatible = row.Int(1)};
                               })
                      .status());
  return schema;
}

absl::Status MigrateInTransaction(SqlConnection& connection, std::span<const Migration> migrations, Databases which) {
  RETURN_IF_ERROR(connection.ExecuteScript(
      "CREATE TABLE IF NOT EXISTS schema (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, "
      "minimum_compatible_version INTEGER NOT NULL)"));
  ASSIGN_OR_RETURN(const SchemaVersion schema, ReadSchemaVersion(connection));
  const auto [version, minimum] = schema;
  int newest = migrations.back().version;
  if (minimum > newest) {
    return absl::FailedPreconditionError(
        fmt::format("{} has schema version {}, which needs at least version {}; this build knows version {}: run the "
                    "newer build, or restore a backup made before the upgrade",
                    connection.name(), version, minimum, newest));
  }
  if (which == Databases::kEmpty && version > 0) return absl::OkStatus();
  for (const Migration& migration : migrations) {
    if (migration.version <= version) continue;
    RETURN_IF_ERROR(connection.ExecuteScript(migration.sql));
    RETURN_IF_ERROR(connection
                        .Execute("-- write_schema\nINSERT INTO schema (id, version, minimum_compatible_version) "
                                 "VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE SET version = excluded.version, "
                                 "minimum_compatible_version = excluded.minimum_compatible_version",
                                 {int64_t{migration.version}, int64_t{migration.minimum_compatible_version}})
                        .status());
  }
  return absl::OkStatus();
}

absl::Status MigrateThose(SqlConnection& connection, std::span<const Migration> migrations, Databases which) {
  RETURN_IF_ERROR(connection.Begin());
  if (absl::Status status = MigrateInTransaction(connection, migrations, which); !status.ok()) {
    connection.Rollback();
    return status;
  }
  return connection.Commit();
}

}  // namespace

std::span<const Migration> SqliteMigrations() { return kSqliteMigrations; }

absl::Status Migrate(SqlConnection& connection, std::span<const Migration> migrations) {
  return MigrateThose(connection, migrations, Databases::kAll);
}

absl::StatusOr<bool> IsMigrated(SqlConnection& connection, std::span<const Migration> migrations) {
  ASSIGN_OR_RETURN(const SchemaVersion schema, ReadSchemaVersion(connection));
  const int newest = migrations.back().version;
  return schema.version >= newest && schema.minimum_compatible <= newest;
}

absl::Status MakeSchema(SqlConnection& connection, std::span<const Migration> migrations) {
  return MigrateThose(connection, migrations, Databases::kEmpty);
}

}  // namespace sheaf
