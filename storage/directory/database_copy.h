// CopyDatabase: the task store's database as of one moment, in a file of its own, whether or not a server works on it.
//
//   ASSIGN_OR_RETURN(auto hold, StoreHold::Take(directory));
//   ASSIGN_OR_RETURN(DatabaseCopy copy, CopyDatabase(*hold, directory, scratch + "/tasks.db", CopyUse::kLook));
//   ASSIGN_OR_RETURN(const std::vector<Law> laws, VerifyDatabase(*copy.connection));
//
// The database file does not change while the store is held, and its log only grows: the file and then the log, as far
// as it reaches, are what a crash at that moment would leave, and SQLite makes a database of it. Everything that the
// copy has a record of lies in the store's other files until the hold goes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "storage/files/store_hold.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

struct DatabaseCopy {
  std::unique_ptr<SqlConnection> connection;
  // Of the original, before this build's migrations were run on the copy.
  int schema_version = 0;
  // Of the copy, after them.
  int newest_version = 0;
  int64_t database_bytes = 0;
  int64_t log_bytes = 0;
  // A log is there while a server runs, or after one that did not end in order.
  bool has_log = false;
};

enum class CopyUse {
  // Brought to this build's schema, to be looked into.
  kLook,
  // Left as it is.
  kKeep,
};

// NOT_FOUND if there is no database; FAILED_PRECONDITION if a newer build wrote it (kLook); DATA_LOSS. Messages name
// the original.
absl::StatusOr<DatabaseCopy> CopyDatabase(const StoreHold& hold, const std::string& directory, const std::string& to,
                                          CopyUse use);

// The schema version of a database; 0 if it has none.
absl::StatusOr<int> SchemaVersionOf(SqlConnection& connection);

// One that is only for a short time need not survive a crash.
enum class CopyLife { kShort, kFlushed };
// Copies a file. Returns the SHA-256 of what was copied, in hex.
absl::StatusOr<std::string> CopyFileTo(const std::string& from, const std::string& to, CopyLife life);

}  // namespace sheaf
