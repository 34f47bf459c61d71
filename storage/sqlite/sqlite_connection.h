// SqliteConnection: one SQLite database, held by this process alone. WAL, synchronous=FULL: what Commit returned is on
// the disk. Pages have checksums (checksum_vfs.h), and so has the log (log_check.h): damage is DATA_LOSS.
//
//   ASSIGN_OR_RETURN(auto connection, SqliteConnection::Open("/var/lib/sheaf/tasks.db"));
//   ASSIGN_OR_RETURN(auto memory, SqliteConnection::Open(":memory:"));
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "storage/files/store_hold.h"
#include "storage/sql/sql_connection.h"
#include "storage/sqlite/checksum_vfs.h"

struct sqlite3;
struct sqlite3_stmt;

namespace sheaf {

class SqliteConnection final : public SqlConnection {
 public:
  struct Media {
    // The name of a registered SQLite VFS; empty: the machine's files.
    std::string vfs;
    // If there is one, the log is written back only while it lets in; it must outlive the connection.
    HoldGate* gate = nullptr;
  };
  // Creates the file if there is none, and gives the pages of an older one checksums.
  static absl::StatusOr<std::unique_ptr<SqliteConnection>> Open(const std::string& path, const Media& media);
  static absl::StatusOr<std::unique_ptr<SqliteConnection>> Open(const std::string& path) { return Open(path, Media()); }
  ~SqliteConnection() override;

  absl::Status Begin() override;
  absl::Status Commit() override;
  void Rollback() override;
  using SqlConnection::Execute;
  absl::StatusOr<int64_t> Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                  RowCallback on_row) override;
  absl::Status ExecuteScript(const std::string& sql) override;
  std::string name() const override { return path_; }

 private:
  SqliteConnection(std::unique_ptr<ChecksumVfs> vfs, sqlite3* database, std::string path, HoldGate* gate)
      : vfs_(std::move(vfs)), database_(database), path_(std::move(path)), gate_(gate) {}

  // Rewrites the database with room for checksums.
  absl::Status AddChecksums();
  // Writes the log back and empties it: what a crash or a failed commit left behind its end has the salts of what comes
  // next, and had better not be there when it is read again. Put off while the disk is full or the store is held.
  absl::Status BeginNewLog();

  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  absl::StatusOr<sqlite3_stmt*> Prepare(std::string_view sql);
  // The last error, as a status that names the statement's first line and the file.
  absl::Status Error(std::string_view sql) const;

  // Null for a database in memory.
  const std::unique_ptr<ChecksumVfs> vfs_;
  sqlite3* const database_;
  const std::string path_;
  HoldGate* const gate_;
  std::unordered_map<std::string, sqlite3_stmt*, TextHash, std::equal_to<>> statements_;
  // Frames of a transaction that was not committed may lie behind the end of the log.
  bool log_has_leftovers_ = true;
  // A transaction could not be rolled back: every later operation returns why.
  absl::Status unusable_;
};

}  // namespace sheaf
