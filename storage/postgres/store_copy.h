// CopyStoreToPostgres: a directory's store, whole, into an empty PostgreSQL database: a server that is started on that
// goes on where the directory's stopped, live rounds included. The directory stays as it is.
//
//   ASSIGN_OR_RETURN(StoreCopySummary copied, CopyStoreToPostgres({.directory = "/var/lib/sheaf",
//                                                                  .conninfo = "postgresql://db/sheaf",
//                                                                  .scratch = scratch}));
//
// The database gets everything in one transaction, in which it is also compared with the directory. Before, it is
// marked (unfinished_copy.h): whatever ends a copy leaves an empty database that no server takes, and the next copy
// into it starts anew. Memory is bounded, whatever the store's size, but for the names of its files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/postgres/payload_copy.h"
#include "storage/postgres/table_copy.h"

namespace sheaf {

struct StoreCopySummary {
  // Of the database, without a password.
  std::string to;
  int schema_version = 0;
  int64_t num_live_rounds = 0;
  std::vector<CopiedTable> tables;
  PayloadCopy::Counts payloads;
};

struct StoreCopyParams {
  std::string directory;
  // Without a password: INVALID_ARGUMENT.
  std::string conninfo;
  // Where a copy of the directory's database is read, as by VerifyStore.
  std::string scratch;
};
// NOT_FOUND if the directory is no store. FAILED_PRECONDITION, naming why, if a process uses the store, it is a backup,
// or its schema is not this build's; if the database has something in it already, a server serves it, or another copy
// writes into it. DATA_LOSS, naming the file, if the store is damaged. RESOURCE_EXHAUSTED, and the connection's codes.
absl::StatusOr<StoreCopySummary> CopyStoreToPostgres(const StoreCopyParams& params);

}  // namespace sheaf
