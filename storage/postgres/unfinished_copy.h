// The mark of a copy into a database that has not ended: no server takes such a database for a store.
//
//   RETURN_IF_ERROR(CheckNoUnfinishedCopy(*connection));
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "storage/postgres/postgres_connection.h"

namespace sheaf {

// Of a database with its schema. FAILED_PRECONDITION, naming the directory that was to be copied, if one has not ended.
absl::Status CheckNoUnfinishedCopy(PostgresConnection& connection);

// Inside of a transaction: queues that one of `directory` begins, instead of any before; or that it has ended.
void QueueBeginCopy(PostgresConnection& connection, std::string_view directory);
void QueueEndCopy(PostgresConnection& connection);

}  // namespace sheaf
