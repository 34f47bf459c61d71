// Migrate: brings a database to this build's schema, one numbered step after the other, all or nothing.
//
//   RETURN_IF_ERROR(Migrate(connection, SqliteMigrations()));
//
// The table `schema` says which version the data has, and the oldest version whose code may still read and write it.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

struct Migration {
  int version;
  // Oldest schema version whose code works on the data after this step.
  int minimum_compatible_version;
  const char* name;
  const char* sql;
};

// In order, from version 1.
std::span<const Migration> SqliteMigrations();

// FAILED_PRECONDITION, naming both versions, if a newer build wrote the data and this one is too old for it.
absl::Status Migrate(SqlConnection& connection, std::span<const Migration> migrations);

// Migrate has nothing to do: the data have this build's schema, or a newer one that it may use.
absl::StatusOr<bool> IsMigrated(SqlConnection& connection, std::span<const Migration> migrations);

// The same where somebody else may be at work: makes the schema of an empty database, and changes no other.
absl::Status MakeSchema(SqlConnection& connection, std::span<const Migration> migrations);

}  // namespace sheaf
