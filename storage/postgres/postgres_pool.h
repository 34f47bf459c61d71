// PostgresPool: connections to one database, for whoever needs one for a moment, on any thread.
//
//   PostgresPool pool({.conninfo = "dbname=sheaf"}, /*connections_max=*/4);
//   ASSIGN_OR_RETURN(PostgresPool::Borrowed connection, pool.Borrow());
//   RETURN_IF_ERROR(connection->Run({.sql = "-- forget\nDELETE FROM drafts"}));
//   RETURN_IF_ERROR(RunTransaction(*connection, [&]() -> absl::Status {
//     connection->Queue({.sql = "-- add_piece\nINSERT ..."});
//     return connection->Fly();                                          // Large ones fly in several flights.
//   }));
//
// A connection is made when it is first needed, and made again where it broke. Thread-safe; a connection belongs to
// who has borrowed it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "storage/postgres/postgres_connection.h"

namespace sheaf {

class PostgresPool {
 public:
  PostgresPool(PostgresConnection::Options options, int connections_max)
      : options_(std::move(options)), connections_max_(connections_max) {}

  // Comes back to its pool, which outlives it, when it is destroyed.
  class Borrowed {
   public:
    Borrowed(PostgresPool& pool, std::unique_ptr<PostgresConnection> connection)
        : pool_(&pool), connection_(std::move(connection)) {}
    Borrowed(Borrowed&&) = default;
    ~Borrowed() {
      if (connection_ != nullptr) pool_->GiveBack(std::move(connection_));
    }
    PostgresConnection& operator*() const { return *connection_; }
    PostgresConnection* operator->() const { return connection_.get(); }

   private:
    PostgresPool* pool_;
    std::unique_ptr<PostgresConnection> connection_;
  };

  // Waits while all are borrowed: UNAVAILABLE after the options' `timeout`, and once Stop was called. Else Connect's
  // codes.
  absl::StatusOr<Borrowed> Borrow() EXCLUDES(mutex_);

  // Nothing is lent any more. Who has a connection looks whether they should go on: CheckGoesOn is UNAVAILABLE then.
  void Stop() { is_stopped_ = true; }
  absl::Status CheckGoesOn() const;

 private:
  void GiveBack(std::unique_ptr<PostgresConnection> connection) EXCLUDES(mutex_);

  const PostgresConnection::Options options_;
  const int connections_max_;
  std::atomic<bool> is_stopped_ = false;
  Mutex mutex_;
  CondVar given_back_;
  // Of `connections_max_`.
  int num_borrowed_ GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<PostgresConnection>> idle_ GUARDED_BY(mutex_);
};

// Runs `body` inside of one transaction. Its error is returned, and nothing has happened. UNAVAILABLE if the
// connection broke: where it did at the very end, all may have happened, so that `body` must be one that can be
// repeated.
absl::Status RunTransaction(PostgresConnection& connection, absl::FunctionRef<absl::Status()> body);
// The last part of a transaction, durable when it flies with OK.
void QueueCommit(PostgresConnection& connection);

}  // namespace sheaf
