#include "storage/directory/database_copy.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/files/file_system.h"
#include "storage/sql/migrator.h"
#include "storage/sqlite/checksum_vfs.h"
#include "storage/sqlite/sqlite_connection.h"

namespace sheaf {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
constexpr int64_t kLogHeaderBytes = 32;
// The log may begin anew once after the hold was taken: if it had been written back before.
constexpr int kTries = 3;

// The beginning of the log, which tells one use of the file from the next; empty if there is none.
absl::StatusOr<std::string> ReadLogHeader(const std::string& log) {
  PosixFileSystem files;
  absl::StatusOr<std::unique_ptr<File>> file = files.Open(log, FileSystem::kRead);
  if (absl::IsNotFound(file.status())) return std::string();
  RETURN_IF_ERROR(file.status());
  return (*file)->ReadAt(0, kLogHeaderBytes);
}

absl::Status CopyBoth(const std::string& from, const std::string& to, DatabaseCopy& copy) {
  PosixFileSystem files;
  for (int i = 0; i < kTries; ++i) {
    ASSIGN_OR_RETURN(const std::string before, ReadLogHeader(from + "-wal"));
    RETURN_IF_ERROR(CopyFileTo(from, to, CopyLife::kShort).status());
    RETURN_IF_ERROR(files.Unlink(to + "-wal"));
    absl::Status log = CopyFileTo(from + "-wal", to + "-wal", CopyLife::kShort).status();
    if (!log.ok() && !absl::IsNotFound(log)) return log;
    ASSIGN_OR_RETURN(const std::string after, ReadLogHeader(from + "-wal"));
    if (before != after) continue;
    copy.has_log = log.ok();
    ASSIGN_OR_RETURN(const FileSystem::Stat database, files.GetStat(to));
    copy.database_bytes = database.size_bytes;
    if (!log.ok()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const FileSystem::Stat stat, files.GetStat(to + "-wal"));
    copy.log_bytes = stat.size_bytes;
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(fmt::format(
      "{} changes all the time: the server that uses it is too old to be copied while it runs; stop it", from));
}

// An error of the copy is one of the original.
absl::Status AboutOriginal(const absl::Status& status, const std::string& copy, const std::string& original) {
  std::string message(status.message());
  for (size_t at = message.find(copy); at != std::string::npos; at = message.find(copy, at + original.size())) {
    message.replace(at, copy.size(), original);
  }
  return absl::Status(status.code(), message);
}

absl::Status OpenCopy(const std::string& path, CopyUse use, DatabaseCopy& copy) {
  ASSIGN_OR_RETURN(copy.connection, SqliteConnection::Open(path));
  // Of the original pages, before anything is changed.
  RETURN_IF_ERROR(copy.connection->ExecuteScript("PRAGMA wal_checkpoint(TRUNCATE)"));
  RETURN_IF_ERROR(CheckPages(path).status());
  ASSIGN_OR_RETURN(copy.schema_version, SchemaVersionOf(*copy.connection));
  if (use == CopyUse::kKeep) return absl::OkStatus();
  RETURN_IF_ERROR(Migrate(*copy.connection, SqliteMigrations()));
  ASSIGN_OR_RETURN(copy.newest_version, SchemaVersionOf(*copy.connection));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CopyFileTo(const std::string& from, const std::string& to, CopyLife life) {
  PosixFileSystem files;
  ASSIGN_OR_RETURN(const std::unique_ptr<File> source, files.Open(from, FileSystem::kRead));
  ASSIGN_OR_RETURN(const std::unique_ptr<File> target, files.Open(to, FileSystem::kCreate));
  RETURN_IF_ERROR(target->Truncate(0));
  // What is appended meanwhile is not waited for.
  ASSIGN_OR_RETURN(const int64_t size, source->Size());
  Sha256 hash;
  for (int64_t offset = 0; offset < size;) {
    ASSIGN_OR_RETURN(const std::string bytes, source->ReadAt(offset, std::min(kChunkBytes, size - offset)));
    if (bytes.empty()) break;
    RETURN_IF_ERROR(target->WriteAt(offset, bytes));
    hash.Update(bytes);
    offset += static_cast<int64_t>(bytes.size());
  }
  if (life == CopyLife::kFlushed) RETURN_IF_ERROR(target->Sync());
  return std::move(hash).Hex();
}

absl::StatusOr<int> SchemaVersionOf(SqlConnection& connection) {
  int64_t version = 0;
  bool has_table = false;
  RETURN_IF_ERROR(connection
                      .Execute("-- find_schema\nSELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'schema'",
                               {}, [&](const SqlRow&) { has_table = true; })
                      .status());
  if (!has_table) return 0;
  RETURN_IF_ERROR(
      connection
          .Execute("-- read_version\nSELECT version FROM schema", {}, [&](const SqlRow& row) { version = row.Int(0); })
          .status());
  return static_cast<int>(version);
}

absl::StatusOr<DatabaseCopy> CopyDatabase(const StoreHold& /*hold*/, const std::string& directory,
                                          const std::string& to, CopyUse use) {
  const std::string from = directory + "/tasks.db";
  DatabaseCopy copy;
  if (absl::Status status = CopyBoth(from, to, copy); !status.ok()) {
    if (!absl::IsNotFound(status)) return status;
    return absl::NotFoundError(fmt::format("{} is not a store: it has no tasks.db", directory));
  }
  if (absl::Status status = OpenCopy(to, use, copy); !status.ok()) return AboutOriginal(status, to, from);
  return copy;
}

}  // namespace sheaf
