// OpenPostgresStore: a database as a server's store.
//
//   ASSIGN_OR_RETURN(PostgresStore store, OpenPostgresStore({.conninfo = "postgresql://db1,db2/sheaf",
//                                                            .directory = "/var/lib/sheaf",
//                                                            .address = "10.0.0.1:7433"}, random));
//   ASSIGN_OR_RETURN(const RoundRecord round, store.task_store().GetRound(id));
//
// The directory is this server's own: it has the name by which the database knows the server again, and the files of
// what it has fetched. It is created with mode 0700 if it is missing (its parent must be there), and locked for as long
// as the store lives. Codes: those of PostgresTaskStore::Open, PostgresPayloadStore::Open and DirectoryLock.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "storage/directory/open.h"
#include "storage/files/file_system.h"
#include "storage/postgres/postgres_payload_store.h"
#include "storage/postgres/postgres_task_store.h"

namespace sheaf {

// Each member needs those before it.
struct PostgresStore {
  std::unique_ptr<FileSystem> files;
  std::unique_ptr<DirectoryLock> lock;
  std::unique_ptr<PostgresTaskStore> tasks;
  std::unique_ptr<PostgresPayloadStore> payloads;

  TaskStore& task_store() { return tasks->tasks(); }
};

struct PostgresStoreOptions {
  std::string conninfo;
  // As PostgresShards::SchemaOf. Of a shard that is not the first the directory is one within that of the first, which
  // has the lock.
  std::string schema = {};
  std::string directory;
  // For payloads, beside the store's own.
  int connections_max = 4;
  // As PostgresOwner::Options. Without a server it is the directory's (NameOfServer).
  std::string server = {};
  std::string address;
  PeerAddress peer;
  absl::Duration takeover_after = absl::Seconds(4);
  std::function<bool(const PostgresOwner::Waiting&)> wait;
  std::function<bool()> may_take = [] { return true; };
  absl::Duration up_for = absl::ZeroDuration();
  std::function<void(const PostgresOwner::Tenure&)> taken;
};
// `random` names a server that has no name yet.
absl::StatusOr<PostgresStore> OpenPostgresStore(const PostgresStoreOptions& options, Random& random);

// The payloads alone, for a server that waits for its turn. It has connections of its own, and files, which lie beside
// those that it has as the owner, and go when it is destroyed. The codes of PostgresPayloadStore::Open.
absl::StatusOr<std::shared_ptr<PostgresPayloadStore>> OpenWaitingPayloads(const PostgresConnection::Options& database,
                                                                          const std::string& directory,
                                                                          int connections_max = 4);

// The name by which a database knows the server of this directory, which is there. Makes one where there is none.
absl::StatusOr<std::string> NameOfServer(const std::string& directory, Random& random);

}  // namespace sheaf
