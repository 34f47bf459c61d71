#include "storage/sqlite/sqlite_connection.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/sqlite/log_check.h"

namespace sheaf {
namespace {

// Texts that depend on a filter make a few dozen variants; past this something builds them from values.
constexpr size_t kStatementsMax = 500;

// Pages in the log after which it is written back: with many, a hot page is written back once instead of often; but the
// batch that does it takes 3 to 6 ms of its thread for each 1000.
constexpr int kLogPages = 2000;

// EXCLUSIVE keeps the lock and the WAL's index in this process: no shared memory, fewer system calls. Foreign keys are
// declared for readers and for PRAGMA foreign_key_check; enforced, each deleted task would look through all
// contributions. What is deleted or overwritten is zeroed: nothing of it stays in free pages, or in backups.
constexpr char kSettings[] =
    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF; "
    "PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON; "
    "BEGIN EXCLUSIVE; COMMIT;";

class SqliteRow final : public SqlRow {
 public:
  explicit SqliteRow(sqlite3_stmt* statement) : statement_(statement) {}
  bool IsNull(int column) const override { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
  int64_t Int(int column) const override { return sqlite3_column_int64(statement_, column); }
  std::string_view Bytes(int column) const override {
    const void* bytes = sqlite3_column_blob(statement_, column);
    int size = sqlite3_column_bytes(statement_, column);
    return {static_cast<const char*>(bytes), static_cast<size_t>(size)};
  }

 private:
  sqlite3_stmt* const statement_;
};

int Bind(sqlite3_stmt* statement, int place, const SqlValue& value) {
  // An empty view may have no address, which SQLite would take for NULL.
  auto address = [](std::string_view bytes) { return bytes.data() ? bytes.data() : ""; };
  if (const auto* number = std::get_if<int64_t>(&value)) return sqlite3_bind_int64(statement, place, *number);
  if (const auto* text = std::get_if<SqlText>(&value)) {
    return sqlite3_bind_text64(statement, place, address(text->value), text->value.size(), SQLITE_STATIC, SQLITE_UTF8);
  }
  if (const auto* blob = std::get_if<SqlBlob>(&value)) {
    return sqlite3_bind_blob64(statement, place, address(blob->value), blob->value.size(), SQLITE_STATIC);
  }
  return sqlite3_bind_null(statement, place);
}

// True if the last write failed for want of space. SQLite itself says so for ENOSPC only, not for a quota or a file
// size limit.
bool IsFull(sqlite3* database) {
  for (int which : {SQLITE_FCNTL_FILE_POINTER, SQLITE_FCNTL_JOURNAL_POINTER}) {
    sqlite3_file* file = nullptr;
    int error = 0;
    if (sqlite3_file_control(database, "main", which, &file) != SQLITE_OK || !file || !file->pMethods) continue;
    file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error);
    if (error == EFBIG || error == ENOSPC || error == EDQUOT) return true;
  }
  return false;
}

// As SQLite's own hook, but for the gate.
int WriteLogBack(void* gate, sqlite3* database, const char* name, int num_pages) {
  auto* hold_gate = static_cast<HoldGate*>(gate);
  if (num_pages < kLogPages || (hold_gate != nullptr && !hold_gate->Enter())) return SQLITE_OK;
  sqlite3_wal_checkpoint_v2(database, name, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (hold_gate != nullptr) hold_gate->Leave();
  return SQLITE_OK;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SqliteConnection>> SqliteConnection::Open(const std::string& path, const Media& media) {
  std::unique_ptr<ChecksumVfs> checksums;
  if (path != ":memory:") {
    RETURN_IF_ERROR(CheckLog(path, media.vfs));
    checksums = std::make_unique<ChecksumVfs>(media.vfs);
  }
  sqlite3* database = nullptr;
  int code = sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                             checksums != nullptr ? checksums->name().c_str() : nullptr);
  if (database == nullptr) return absl::InternalError(fmt::format("{}: no memory for a database connection", path));
  std::unique_ptr<SqliteConnection> connection(new SqliteConnection(std::move(checksums), database, path, media.gate));
  if (code != SQLITE_OK) return connection->Error("-- open");
  sqlite3_extended_result_codes(database, 1);
  int reserved = ChecksumVfs::kReservedBytes;
  if (connection->vfs_ != nullptr) sqlite3_file_control(database, "main", SQLITE_FCNTL_RESERVE_BYTES, &reserved);
  RETURN_IF_ERROR(connection->ExecuteScript(kSettings));
  sqlite3_wal_hook(database, WriteLogBack, media.gate);
  if (connection->vfs_ != nullptr && !ChecksumVfs::HasChecksums(database)) RETURN_IF_ERROR(connection->AddChecksums());
  RETURN_IF_ERROR(connection->BeginNewLog());
  return connection;
}

absl::Status SqliteConnection::BeginNewLog() {
  // A batch that failed leaves frames in the log that no commit follows. The next batch would be written over them, and
  // a crash in the middle of it would leave the new frames before the old ones: CheckLog could take that for damage.
  // So the log is written back and cut to nothing first. A crash in here loses nothing: the log goes only once the
  // database that it was written back to is flushed.
  // While the store is held the log stays as it is, leftovers and all; the next batch tries again.
  log_has_leftovers_ = gate_ != nullptr && !gate_->Enter();
  if (log_has_leftovers_) return absl::OkStatus();
  const absl::Status status = ExecuteScript("PRAGMA wal_checkpoint(TRUNCATE)");
  if (gate_ != nullptr) gate_->Leave();
  log_has_leftovers_ = !status.ok();
  return absl::IsResourceExhausted(status) ? absl::OkStatus() : status;
}

absl::Status SqliteConnection::AddChecksums() {
  RETURN_IF_ERROR(ExecuteScript("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)"));
  if (ChecksumVfs::HasChecksums(database_)) return absl::OkStatus();
  return absl::InternalError(fmt::format("the pages of {} could not be given checksums", path_));
}

SqliteConnection::~SqliteConnection() {
  for (auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  // Closing writes the log back and deletes it.
  const bool may_write_back = gate_ == nullptr || gate_->Enter();
  if (!may_write_back) sqlite3_db_config(database_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  sqlite3_close(database_);
  if (gate_ != nullptr && may_write_back) gate_->Leave();
}

absl::Status SqliteConnection::Error(std::string_view sql) const {
  int code = sqlite3_errcode(database_);
  bool is_write_error = sqlite3_extended_errcode(database_) == SQLITE_IOERR_WRITE;
  bool is_full = (code & 0xff) == SQLITE_FULL || (is_write_error && IsFull(database_));
  std::string message = fmt::format("{} ({}): {}", path_, sql.substr(0, sql.find('\n')),
                                    is_full ? "the disk is full" : sqlite3_errmsg(database_));
  if (is_full) return absl::ResourceExhaustedError(message + "; free some space or move the store to a larger disk");
  if (sqlite3_extended_errcode(database_) == SQLITE_IOERR_DATA) {
    return absl::DataLossError(
        fmt::format("{} ({}): a page does not match its checksum; restore the store from a backup", path_,
                    sql.substr(0, sql.find('\n'))));
  }
  switch (code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return absl::DataLossError(message + "; restore the store from a backup");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::FailedPreconditionError(message + "; another process has it open");
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_CANTOPEN:
      return absl::PermissionDeniedError(message);
    default:
      // Of an I/O error only the number tells which operation failed.
      return absl::InternalError(
          fmt::format("{} (SQLite result code {})", message, sqlite3_extended_errcode(database_)));
  }
}

absl::StatusOr<sqlite3_stmt*> SqliteConnection::Prepare(std::string_view sql) {
  if (auto found = statements_.find(sql); found != statements_.end()) return found->second;
  SHEAF_CHECK(statements_.size() < kStatementsMax, "too many different statements: {}", sql);
  sqlite3_stmt* statement = nullptr;
  int code = sqlite3_prepare_v3(database_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                &statement, nullptr);
  if (code != SQLITE_OK) return Error(sql);
  statements_.emplace(std::string(sql), statement);
  return statement;
}

absl::StatusOr<int64_t> SqliteConnection::Execute(std::string_view sql, std::initializer_list<SqlValue> values,
                                                  RowCallback on_row) {
  RETURN_IF_ERROR(unusable_);
  ASSIGN_OR_RETURN(sqlite3_stmt * statement, Prepare(sql));
  int place = 0;
  for (const SqlValue& value : values) {
    const int code = Bind(statement, ++place, value);
    SHEAF_CHECK(code == SQLITE_OK || code == SQLITE_NOMEM, "cannot bind value {} of {}", place, sql);
    if (code == SQLITE_NOMEM) return Error(sql);
  }
  SHEAF_CHECK(place == sqlite3_bind_parameter_count(statement), "{} values for {}", place, sql);
  SqliteRow row(statement);
  int code;
  while ((code = sqlite3_step(statement)) == SQLITE_ROW) on_row(row);
  absl::Status status = code == SQLITE_DONE ? absl::OkStatus() : Error(sql);
  sqlite3_reset(statement);
  RETURN_IF_ERROR(status);
  return sqlite3_changes64(database_);
}

absl::Status SqliteConnection::ExecuteScript(const std::string& sql) {
  RETURN_IF_ERROR(unusable_);
  if (sqlite3_exec(database_, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return absl::OkStatus();
  return Error("-- script");
}

absl::Status SqliteConnection::Begin() {
  if (log_has_leftovers_) RETURN_IF_ERROR(BeginNewLog());
  return Execute("BEGIN", {}).status();
}

absl::Status SqliteConnection::Commit() {
  absl::Status status = Execute("COMMIT", {}).status();
  if (!status.ok()) Rollback();
  return status;
}

void SqliteConnection::Rollback() {
  // Also when SQLite has rolled back by itself: pages that did not fit into memory are in the log.
  log_has_leftovers_ = true;
  // Some errors have rolled back already; then there is nothing to do.
  if (!sqlite3_get_autocommit(database_)) {
    // For want of memory, most likely. What the transaction did must neither be seen nor committed.
    unusable_ = Execute("ROLLBACK", {}).status();
  }
}

}  // namespace sheaf
