// OwnedSession: the connection of a store that this server owns. Each transaction begins with the fence; a COMMIT whose
// answer was lost is settled before Commit returns; a connection that broke elsewhere is made anew by the next
// transaction, or by the next question outside of one. After a takeover everything returns ABORTED.
//
//   OwnedSession session(*connection, *owner);
//   RETURN_IF_ERROR(session.Begin());
//   RETURN_IF_ERROR(session.Change(1, "-- drain\nUPDATE workers SET is_draining = 1 WHERE name = ?", {SqlText("w1")}));
//   RETURN_IF_ERROR(session.Commit());
//
// Not thread-safe.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/postgres/postgres_owner.h"
#include "storage/postgres/postgres_session.h"

namespace sheaf {

class OwnedSession;

// What somebody else has to say in each transaction.
class BatchPart {
 public:
  virtual ~BatchPart() = default;
  // Before the COMMIT.
  virtual void QueueInto(OwnedSession& session) = 0;
  // It was committed, or nothing of it has happened.
  virtual void Ended() = 0;
};

class OwnedSession final : public SqlConnection {
 public:
  OwnedSession(PostgresConnection& connection, PostgresOwner& owner)
      : connection_(connection), owner_(owner), session_(connection, [this] { return owner_.Fence(); }) {}

  // Until it leaves, or goes, which is after the last transaction.
  void Join(BatchPart& part) { part_ = &part; }
  void Leave() { part_ = nullptr; }

  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  using SqlConnection::Execute;
  absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                  RowCallback on_row) override;
  absl::Status Change(int64_t num_rows, std::string_view sql, std::initializer_list<SqlValue> values) override {
    return session_.Change(num_rows, sql, values);
  }
  absl::Status ExecuteScript(const std::string& sql) override { return session_.ExecuteScript(sql); }
  std::string name() const override { return session_.name(); }
  PostgresOwner::Tenure tenure() const { return owner_.tenure(); }

  // As PostgresSession's: a change of the transaction, with values from `$1`.
  void Queue(int64_t num_rows, std::string sql, PostgresValues values, std::string returning = "",
             PostgresSession::OnRow on_row = nullptr) {
    session_.Queue(num_rows, std::move(sql), std::move(values), std::move(returning), std::move(on_row));
  }
  // The same of any number of rows.
  void Queue(std::string sql, PostgresValues values) {
    connection_.Queue({.sql = std::move(sql), .values = std::move(values)});
  }
  // A question of the transaction, or outside of one, with values from `$1`.
  absl::Status Ask(PostgresConnection::Statement statement);

 private:
  // Before a question. A transaction whose connection broke cannot go on.
  absl::Status CheckConnected();
  absl::Status CommitAll();
  absl::Status Told(absl::Status status);

  PostgresConnection& connection_;
  PostgresOwner& owner_;
  PostgresSession session_;
  BatchPart* part_ = nullptr;
  bool is_in_transaction_ = false;
};

}  // namespace sheaf
