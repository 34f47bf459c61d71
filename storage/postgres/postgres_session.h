// PostgresSession: a PostgresConnection as the task store sees it. A transaction costs no round trip of its own: BEGIN
// and all that is only to be written wait until somebody asks for an answer, or commits, and fly with that.
//
//   ASSIGN_OR_RETURN(auto opened, PostgresConnection::Open({.conninfo = "dbname=sheaf"}));
//   PostgresSession session(*opened, [] { return PostgresConnection::Statement{.sql = "-- fence\nUPDATE ..."}; });
//   RETURN_IF_ERROR(session.Begin());   // Sends nothing.
//   RETURN_IF_ERROR(session.Change(1, "-- drain\nUPDATE workers SET is_draining = 1 WHERE name = ?", {SqlText("w1")}));
//   RETURN_IF_ERROR(session.Commit());  // One flight: BEGIN, fence, UPDATE, COMMIT.
//
// A Change that fails, or changes another number of rows than it must, is told by what flies next: then nothing of the
// transaction can be committed any more. Texts are those of storage/sql, with `?` for values. Not thread-safe.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

class PostgresSession final : public SqlConnection {
 public:
  // What each transaction does first.
  using Opening = std::function<PostgresConnection::Statement()>;
  PostgresSession(PostgresConnection& connection, Opening opening)
      : connection_(connection), opening_(std::move(opening)) {}

  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;

  using SqlConnection::Execute;
  absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                  RowCallback on_row) override;
  absl::Status Change(int64_t num_rows, std::string_view sql, std::initializer_list<SqlValue> values) override;
  absl::Status ExecuteScript(const std::string& sql) override;
  std::string name() const override { return connection_.name(); }

  // For writers that know PostgreSQL: an INSERT, UPDATE or DELETE of the transaction, with values from `$1`. See
  // PostgresConnection::Change for `returning`.
  using OnRow = std::function<void(const SqlRow& row)>;
  void Queue(int64_t num_rows, std::string sql, PostgresValues values, std::string returning = "",
             OnRow on_row = nullptr);
  // What is queued is sent by somebody else: from here on there is something to roll back.
  void BeginsNow() { has_begun_ = is_in_transaction_; }

 private:
  const std::string& Translated(std::string_view sql);

  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  PostgresConnection& connection_;
  const Opening opening_;
  bool is_in_transaction_ = false;
  // BEGIN has left.
  bool has_begun_ = false;
  std::unordered_map<std::string, std::string, TextHash, std::equal_to<>> translated_;
};

}  // namespace sheaf
