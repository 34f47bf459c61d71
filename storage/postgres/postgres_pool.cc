#include "storage/postgres/postgres_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace sheaf {

absl::Status PostgresPool::CheckGoesOn() const {
  return is_stopped_ ? absl::UnavailableError("this server no longer uses the database so") : absl::OkStatus();
}

absl::StatusOr<PostgresPool::Borrowed> PostgresPool::Borrow() {
  std::unique_ptr<PostgresConnection> connection;
  {
    MutexLock lock(mutex_);
    absl::Duration remaining = options_.timeout;
    while (num_borrowed_ >= connections_max_) {
      RETURN_IF_ERROR(CheckGoesOn());
      if (remaining <= absl::ZeroDuration()) {
        return absl::UnavailableError(fmt::format("all {} connections to the database have been busy for {}",
                                                  connections_max_, absl::FormatDuration(options_.timeout)));
      }
      // In steps: it may wake for no reason, and no clock is asked.
      const absl::Duration step = std::min(remaining, absl::Milliseconds(100));
      given_back_.WaitFor(mutex_, step);
      remaining -= step;
    }
    RETURN_IF_ERROR(CheckGoesOn());
    ++num_borrowed_;
    if (!idle_.empty()) {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  absl::Status connected;
  if (connection == nullptr) {
    absl::StatusOr<std::unique_ptr<PostgresConnection>> opened = PostgresConnection::Open(options_);
    if (opened.ok()) return Borrowed(*this, *std::move(opened));
    connected = opened.status();
  } else {
    // One that broke while nobody used it is made anew.
    connection->AwaitNotice(absl::ZeroDuration()).IgnoreError();
    if (!connection->is_connected()) connected = connection->Connect();
    if (connected.ok()) return Borrowed(*this, std::move(connection));
  }
  GiveBack(std::move(connection));
  return connected;
}

void PostgresPool::GiveBack(std::unique_ptr<PostgresConnection> connection) {
  if (connection != nullptr) connection->Drop();
  MutexLock lock(mutex_);
  --num_borrowed_;
  if (connection != nullptr) idle_.push_back(std::move(connection));
  given_back_.NotifyOne();
}

void QueueCommit(PostgresConnection& connection) {
  // While a COMMIT waits for its synchronous standby, a statement that runs out of time would be told as committed.
  connection.Queue({.sql = "-- no_timeout\nSET LOCAL statement_timeout = 0"});
  connection.Queue({.sql = "-- commit\nCOMMIT"});
}

absl::Status RunTransaction(PostgresConnection& connection, absl::FunctionRef<absl::Status()> body) {
  connection.Queue({.sql = "-- begin\nBEGIN"});
  absl::Status status = body();
  if (status.ok()) {
    QueueCommit(connection);
    status = connection.Fly();
  }
  if (status.ok()) return status;
  connection.Drop();
  // What cannot be rolled back is a connection that broke, and its transaction with it. A warning if none has begun.
  if (connection.is_connected()) connection.Run({.sql = "-- rollback\nROLLBACK"}).IgnoreError();
  return status;
}

}  // namespace sheaf
