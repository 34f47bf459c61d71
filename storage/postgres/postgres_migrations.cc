#include "storage/postgres/postgres_migrations.h"

#include "storage/migrations/postgres/0007_initial.sql.h"
#include "storage/migrations/postgres/0008_second_leases.sql.h"
#include "storage/migrations/postgres/0009_carried_tasks.sql.h"
#include "storage/migrations/postgres/0010_shards.sql.h"
#include "storage/postgres/postgres_session.h"

namespace sheaf {
namespace {

constexpr Migration kPostgresMigrations[] = {
    // What SQLite's steps up to 7 have made.
    {.version = 7, .minimum_compatible_version = 7, .name = "initial", .sql = kPostgres0007Initial},
    // An older build would leave second leases behind, of tasks that it leases again.
    {.version = 8, .minimum_compatible_version = 8, .name = "second_leases", .sql = kPostgres0008SecondLeases},
    // An older build would lease tasks again that were carried over.
    {.version = 9, .minimum_compatible_version = 9, .name = "carried_tasks", .sql = kPostgres0009CarriedTasks},
    // An older build would create rounds in the first shard of populations that are in another.
    {.version = 10, .minimum_compatible_version = 10, .name = "shards", .sql = kPostgres0010Shards},
};

// Of advisory locks in this database, the one of migrations: "sheaf" in ASCII.
constexpr int64_t kMigrationLock = 0x7368656166;

}  // namespace

std::span<const Migration> PostgresMigrations() { return kPostgresMigrations; }

absl::Status MakePostgresSchema(PostgresConnection& connection, std::span<const Migration> migrations) {
  PostgresSession session(connection, [] {
    return PostgresConnection::Statement{.sql = "-- lock_schema\nSELECT pg_advisory_xact_lock($1)",
                                         .values = PostgresValues().Add(kMigrationLock)};
  });
  return MakeSchema(session, migrations);
}

}  // namespace sheaf
