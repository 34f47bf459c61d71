#include "storage/postgres/postgres_session.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {

absl::Status PostgresSession::Begin() {
  SHEAF_CHECK(!is_in_transaction_, "a transaction is open already");
  SHEAF_CHECK(connection_.num_queued() == 0, "something is queued outside of a transaction");
  connection_.Queue({.sql = "-- begin\nBEGIN"});
  connection_.Queue(opening_());
  is_in_transaction_ = true;
  has_begun_ = false;
  return absl::OkStatus();
}

absl::Status PostgresSession::Commit() {
  SHEAF_CHECK(is_in_transaction_, "no transaction is open");
  // While a COMMIT waits for its synchronous standby, a statement that runs out of time would be told as committed.
  connection_.Queue({.sql = "-- no_timeout\nSET LOCAL statement_timeout = 0"});
  connection_.Queue({.sql = "-- commit\nCOMMIT"});
  has_begun_ = true;
  absl::Status status = connection_.Fly();
  if (!status.ok()) {
    Rollback();
    return status;
  }
  is_in_transaction_ = false;
  return absl::OkStatus();
}

void PostgresSession::Rollback() {
  connection_.Drop();
  is_in_transaction_ = false;
  // What cannot be rolled back is a connection that broke, and its transaction with it.
  if (has_begun_ && connection_.is_connected()) connection_.Run({.sql = "-- rollback\nROLLBACK"}).IgnoreError();
}

absl::StatusOr<int64_t> PostgresSession::Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                                 RowCallback on_row) {
  PostgresConnection::Statement statement{.sql = Translated(sql)};
  for (const SqlValue& value : values) statement.values.Add(value);
  statement.on_row = [on_row](const SqlRow& row) { on_row(row); };
  int64_t num_rows = 0;
  statement.num_rows = &num_rows;
  has_begun_ = is_in_transaction_;
  RETURN_IF_ERROR(connection_.Run(std::move(statement)));
  return num_rows;
}

absl::Status PostgresSession::Change(int64_t num_rows, std::string_view sql, std::initializer_list<SqlValue> values) {
  PostgresValues copied;
  for (const SqlValue& value : values) copied.Add(value);
  Queue(num_rows, Translated(sql), std::move(copied));
  return absl::OkStatus();
}

void PostgresSession::Queue(int64_t num_rows, std::string sql, PostgresValues values, std::string returning,
                            OnRow on_row) {
  SHEAF_CHECK(is_in_transaction_, "writing needs a transaction");
  absl::Status otherwise = ChangedOtherwise(sql, num_rows);
  connection_.Queue(
      {.sql = std::move(sql),
       .values = std::move(values),
       .change = {{.num_rows = num_rows, .otherwise = std::move(otherwise), .returning = std::move(returning)}},
       .on_row = std::move(on_row)});
}

absl::Status PostgresSession::ExecuteScript(const std::string& sql) {
  has_begun_ = is_in_transaction_;
  RETURN_IF_ERROR(connection_.Fly());
  return connection_.RunScript(sql);
}

const std::string& PostgresSession::Translated(std::string_view sql) {
  if (const auto found = translated_.find(sql); found != translated_.end()) return found->second;
  std::string text;
  int place = 0;
  for (const char c : sql) {
    if (c == '?') {
      text += fmt::format("${}", ++place);
    } else {
      text.push_back(c);
    }
  }
  return translated_.emplace(std::string(sql), std::move(text)).first->second;
}

}  // namespace sheaf
