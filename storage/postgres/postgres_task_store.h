// PostgresTaskStore: the TaskStore on a PostgreSQL database, for the server that owns it.
//
//   ASSIGN_OR_RETURN(auto store, PostgresTaskStore::Open({.connection = {.conninfo = "host=db1,db2 dbname=sheaf"},
//                                                         .owner = {.server = "server-1", .address =
//                                                         "10.0.0.1:7433"}}));
//   RETURN_IF_ERROR(store->tasks().BeginBatch());
//
// A batch is one round trip and one flush. One that looks at the database in between, as new rounds, retention and
// lists do, takes a round trip more for each look. Besides the codes of TaskStore: UNAVAILABLE, where the database does
// not serve, and nothing of the batch has happened; ABORTED, where another server has taken over, or what became of a
// batch cannot be known: the store is over, also for looks, and is opened anew. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/postgres/owned_session.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/postgres/postgres_migrations.h"
#include "storage/postgres/postgres_owner.h"
#include "storage/task_store.h"

namespace sheaf {

class PostgresEngine;

class PostgresTaskStore {
 public:
  struct Options {
    PostgresConnection::Options connection;
    PostgresOwner::Options owner;
    // Called when its turn has come and the schema is this build's, before the store is read. May be null.
    std::function<void(const PostgresOwner::Tenure&)> taken;
    // Those of this build.
    std::span<const Migration> migrations = PostgresMigrations();
  };
  // Takes the store, migrates it, and reads what lives. So servers of an older build work until the turn of a newer one
  // has come. The codes of these: FAILED_PRECONDITION while another server owns it, if a newer build wrote it, or if a
  // copy into it has not ended.
  static absl::StatusOr<std::unique_ptr<PostgresTaskStore>> Open(const Options& options);

  TaskStore& tasks() { return *tasks_; }
  PostgresConnection& connection();
  // That of the batches.
  OwnedSession& session();
  // After the last batch: the next owner need not wait.
  absl::Status Release();

 private:
  PostgresTaskStore(PostgresEngine& engine, std::unique_ptr<TaskStore> tasks)
      : engine_(engine), tasks_(std::move(tasks)) {}

  // The tasks' own.
  PostgresEngine& engine_;
  const std::unique_ptr<TaskStore> tasks_;
};

}  // namespace sheaf
