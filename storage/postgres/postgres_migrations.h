// The schema of a PostgreSQL database, in the steps and numbers of storage/sql/migrator.h. A number means the same for
// all engines: what 7 can keep. Steps that only one engine has to take are missing in the others' lists.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/sql/migrator.h"

namespace sheaf {

// In order; the first makes an empty database's schema.
std::span<const Migration> PostgresMigrations();

// Of servers that start at the same time one makes the schema of an empty database, the others wait for it. One that is
// there is left as it is: whoever owns the store migrates it. MakeSchema's codes, and the connection's.
absl::Status MakePostgresSchema(PostgresConnection& connection,
                                std::span<const Migration> migrations = PostgresMigrations());

}  // namespace sheaf
