// SqliteConnection: one SQLite database, held by this process alone. WAL, synchronous=FULL: what Commit returned is on
// the disk.
//
//   ASSIGN_OR_RETURN(auto connection, SqliteConnection::Open("/var/lib/sheafd/tasks.db"));
//   ASSIGN_OR_RETURN(auto memory, SqliteConnection::Open(":memory:"));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "storage/sql/sql_connection.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sheaf {

class SqliteConnection final : public SqlConnection {
 public:
  // Creates the file if there is none. `vfs` is the name of a registered SQLite VFS; empty: the machine's files.
  static absl::StatusOr<std::unique_ptr<SqliteConnection>> Open(const std::string& path, const std::string& vfs = "");
  ~SqliteConnection() override;

  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  using SqlConnection::Execute;
  absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                  RowCallback on_row) override;
  absl::Status ExecuteScript(const std::string& sql) override;
  SqlDialect dialect() const override { return SqlDialect::kSqlite; }
  std::string name() const override { return path_; }

 private:
  SqliteConnection(sqlite3* database, std::string path) : database_(database), path_(std::move(path)) {}

  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  absl::StatusOr<sqlite3_stmt*> Prepare(std::string_view sql);
  // The last error, as a status that names the statement's first line and the file.
  absl::Status Error(std::string_view sql) const;

  sqlite3* const database_;
  const std::string path_;
  std::unordered_map<std::string, sqlite3_stmt*, TextHash, std::equal_to<>> statements_;
};

}  // namespace sheaf
