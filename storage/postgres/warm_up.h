// WarmUp: has the database's process behind a connection read what it must know of each table before its first question
// to it. A process knows nothing when its connection is made; so whoever will need answers soon does this before.
#pragma once

#include "absl/status/status.h"
#include "storage/postgres/postgres_connection.h"

namespace sheaf {

// Of a database with its schema. Two round trips; no row is read.
absl::Status WarmUp(PostgresConnection& connection);

}  // namespace sheaf
