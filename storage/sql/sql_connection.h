// SqlConnection: the seam between the SQL task store and one database connection.
//
//   ASSIGN_OR_RETURN(int64_t changed, connection.Execute(
//       "-- drain_worker\nUPDATE workers SET is_draining = ? WHERE name = ?", {1, SqlText(name)}));
//
// Every value is bound; `?` marks its place. A connection prepares each text once. Codes: RESOURCE_EXHAUSTED when the
// disk is full; DATA_LOSS when the database is damaged; FAILED_PRECONDITION when another process has it; INTERNAL
// otherwise. Not thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf {

// Text and blobs are viewed, not copied: they must live until Execute returns.
struct SqlText {
  explicit SqlText(std::string_view text) : value(text) {}
  std::string_view value;
};
struct SqlBlob {
  explicit SqlBlob(std::string_view bytes) : value(bytes) {}
  std::string_view value;
};
struct SqlNull {};
using SqlValue = std::variant<SqlNull, int64_t, SqlText, SqlBlob>;

// Times as the database keeps them.
int64_t ToSql(absl::Time time);
absl::Time FromSql(int64_t nanos);
// As the database would give it back: what memory has of a row is what is read after a restart.
inline absl::Time Kept(absl::Time time) { return FromSql(ToSql(time)); }

// One row of an answer; columns count from 0. Valid during the callback.
class SqlRow {
 public:
  virtual ~SqlRow() = default;
  virtual bool IsNull(int column) const = 0;
  // 0 if it is null.
  virtual int64_t Int(int column) const = 0;
  // Text or blob; empty if it is null. The view is valid until the next row.
  virtual std::string_view Bytes(int column) const = 0;

  absl::Time Time(int column) const { return FromSql(Int(column)); }
  std::string String(int column) const { return std::string(Bytes(column)); }
};

class SqlConnection {
 public:
  using RowCallback = absl::FunctionRef<void(const SqlRow&)>;
  virtual ~SqlConnection() = default;

  virtual absl::Status Begin() = 0;
  // Durable when it returns OK. On error the transaction is gone.
  virtual absl::Status Commit() = 0;
  virtual void Rollback() = 0;

  // Runs one statement, calls `on_row` for each row of its answer, returns how many rows it changed.
  virtual absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                          RowCallback on_row) = 0;
  absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values) {
    return Execute(sql, values, [](const SqlRow&) {});
  }
  // Execute, for a statement that must change `num_rows` rows: DATA_LOSS otherwise. A connection may send it later, and
  // tell then.
  virtual absl::Status Change(int64_t num_rows, std::string_view sql, std::initializer_list<SqlValue> values);
  // Runs several statements that take no values.
  virtual absl::Status ExecuteScript(const std::string& sql) = 0;

  // Where the data is, for messages.
  virtual std::string name() const = 0;

 protected:
  // DATA_LOSS, naming the statement.
  absl::Status ChangedOtherwise(std::string_view sql, int64_t num_rows) const;
};

}  // namespace sheaf
