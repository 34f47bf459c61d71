// TableCopy: the rows of one table of a task store, from an SQLite database into the table of the same name on
// PostgreSQL. Both databases say what its columns are: one that is added to both is copied without a word here.
//
//   ASSIGN_OR_RETURN(TableCopy rounds, TableCopy::Open(from, to, "rounds"));
//   RETURN_IF_ERROR(rounds.Write());
//   ASSIGN_OR_RETURN(const CopiedTable copied, rounds.Verify());
//
// About a megabyte of rows is in memory at a time, or one row if that is larger. Both connections must outlive it. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/postgres/postgres_connection.h"
#include "storage/sql/sql_connection.h"

namespace sheaf {

struct CopiedTable {
  std::string name;
  int64_t num_rows = 0;
  // SHA-256 of all rows in the order of their keys, in hex: the same on both databases.
  std::string digest;
};

class TableCopy {
 public:
  // The tables of a task store on SQLite, in the order of their names, but for that of its schema's version.
  static absl::StatusOr<std::vector<std::string>> ListTables(SqlConnection& from);

  // INTERNAL if the two tables do not have the same columns.
  static absl::StatusOr<TableCopy> Open(SqlConnection& from, PostgresConnection& to, const std::string& table);

  // Of a table that is empty, inside of a transaction.
  absl::Status Write();
  // Compares row by row; the database has each hashed where it lies. DATA_LOSS names the first that differs.
  absl::StatusOr<CopiedTable> Verify();

 private:
  struct Column {
    std::string name;
    bool is_bytes = false;
  };
  class Rows;
  class Hashes;

  TableCopy(SqlConnection& from, PostgresConnection& to, std::string table)
      : from_(&from), to_(&to), table_(std::move(table)) {}

  absl::Status ReadColumns();
  std::string HashOf(const SqlRow& row) const;
  // For messages.
  std::string KeyOf(const SqlRow& row) const;
  absl::Status Insert(const Rows& rows);

  SqlConnection* from_;
  PostgresConnection* to_;
  std::string table_;
  std::vector<Column> columns_;
  // Places in columns_, in the order of the primary key.
  std::vector<size_t> key_;
  // All columns, by key.
  std::string select_;
};

}  // namespace sheaf
