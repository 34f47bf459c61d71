#include "storage/directory/backup.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <vector>

#include "base/checksum.h"
#include "base/status_macros.h"
#include "storage/directory/database_copy.h"
#include "storage/directory/manifest.h"
#include "storage/directory/open.h"
#include "storage/directory/verify.h"
#include "storage/files/blob_files.h"
#include "storage/files/file_system.h"
#include "storage/sql/state_names.h"

namespace sheaf {
namespace {

namespace fs = std::filesystem;

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string ParentOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// A directory that gets its name when it is whole, and is gone if it never is.
class UnfinishedDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<UnfinishedDirectory>> Create(const std::string& final_path) {
    const std::string path = final_path + ".unfinished";
    std::error_code error;
    if (const std::string holder = DirectoryLock::HolderOf(final_path); !holder.empty()) {
      return absl::FailedPreconditionError(
          fmt::format("{} works on the store in {}: name a new directory", holder, final_path));
    }
    if (fs::exists(final_path, error) && !fs::is_empty(final_path, error)) {
      return absl::FailedPreconditionError(
          fmt::format("{} is there and is not an empty directory; nothing is overwritten: name a new one", final_path));
    }
    if (fs::exists(path, error)) {
      return absl::FailedPreconditionError(fmt::format(
          "{} is there: another run is writing it, or was ended while it did; delete it in the latter case", path));
    }
    PosixFileSystem files;
    RETURN_IF_ERROR(files.CreateDirectory(path));
    return std::unique_ptr<UnfinishedDirectory>(new UnfinishedDirectory(path, final_path));
  }
  ~UnfinishedDirectory() {
    std::error_code error;
    if (!is_finished_) fs::remove_all(path_, error);
  }
  UnfinishedDirectory(const UnfinishedDirectory&) = delete;
  UnfinishedDirectory& operator=(const UnfinishedDirectory&) = delete;

  const std::string& path() const { return path_; }

  // Creates what is missing of a file's directories.
  absl::Status PrepareFor(const std::string& file) {
    std::string made = path_;
    for (const fs::path& part : fs::path(file).parent_path()) {
      made += "/" + part.string();
      RETURN_IF_ERROR(files_.CreateDirectory(made));
      directories_.insert(made);
    }
    return absl::OkStatus();
  }

  // Flushes the directories and gives the whole its name.
  absl::Status Finish() {
    for (const std::string& directory : directories_) RETURN_IF_ERROR(files_.SyncDirectory(directory));
    RETURN_IF_ERROR(files_.SyncDirectory(path_));
    // An empty directory of that name gives way.
    RETURN_IF_ERROR(files_.Rename(path_, final_path_));
    is_finished_ = true;
    const absl::Status status = files_.SyncDirectory(ParentOf(final_path_));
    return absl::IsPermissionDenied(status) ? absl::OkStatus() : status;
  }

 private:
  UnfinishedDirectory(std::string path, std::string final_path)
      : path_(std::move(path)), final_path_(std::move(final_path)) {}

  const std::string path_;
  const std::string final_path_;
  PosixFileSystem files_;
  std::set<std::string> directories_;
  bool is_finished_ = false;
};

// Copies one file, flushed, and adds it to the list.
absl::Status Add(const std::string& from, UnfinishedDirectory& to, const std::string& path, Manifest& manifest,
                 BackupSummary& summary) {
  RETURN_IF_ERROR(to.PrepareFor(path));
  ASSIGN_OR_RETURN(const std::string digest, CopyFileTo(from + "/" + path, to.path() + "/" + path, CopyLife::kFlushed));
  ASSIGN_OR_RETURN(const FileSystem::Stat stat, PosixFileSystem().GetStat(to.path() + "/" + path));
  manifest.entries.push_back({.digest = digest, .path = path});
  ++summary.num_files;
  summary.num_bytes += stat.size_bytes;
  return absl::OkStatus();
}

// What the live rounds of the copied database need, and all blobs.
absl::StatusOr<std::vector<std::string>> ListPayloads(SqlConnection& connection, const std::string& store,
                                                      BackupSummary& summary) {
  PosixFileSystem files;
  std::vector<std::string> paths;
  std::set<std::pair<std::string, int64_t>> segments;
  RETURN_IF_ERROR(connection
                      .Execute("-- backup_rounds\nSELECT id, checkpoint FROM rounds WHERE $IS_LIVE"_sql, {},
                               [&](const SqlRow& row) {
                                 ++summary.num_live_rounds;
                                 if (row.Bytes(1).empty()) return;
                                 paths.push_back(fmt::format("checkpoints/{}/{}.ckpt", EncodeFileName(row.Bytes(0)),
                                                             row.String(1)));
                               })
                      .status());
  RETURN_IF_ERROR(connection
                      .Execute(R"(-- backup_pending
      SELECT r.id, c.spool_segment FROM rounds r
        JOIN contributions c ON c.round_key = r.round_key AND c.sequence > r.checkpoint_sequence
       WHERE r.$IS_LIVE AND c.spool_segment > 0)"_sql,
                               {},
                               [&](const SqlRow& row) {
                                 ++summary.num_pending;
                                 segments.emplace(EncodeFileName(row.Bytes(0)), row.Int(1));
                               })
                      .status());
  std::string round;
  std::vector<std::string> names;
  for (const auto& [encoded, segment] : segments) {
    if (encoded != round) {
      round = encoded;
      ASSIGN_OR_RETURN(names, files.List(store + "/spools/" + round));
    }
    for (const std::string& name : names) {
      if (name.rfind(fmt::format("{}.", segment), 0) == 0) paths.push_back(fmt::format("spools/{}/{}", round, name));
    }
  }
  ASSIGN_OR_RETURN(const std::vector<std::string> blobs, files.List(store + "/blobs"));
  for (const std::string& name : blobs) {
    if (IsSha256Hex(name)) paths.push_back("blobs/" + name);
  }
  return paths;
}

// What was written must be a store that holds.
absl::Status VerifyWritten(UnfinishedDirectory& written, const std::string& original) {
  const std::string scratch = written.path() + "/scratch";
  RETURN_IF_ERROR(PosixFileSystem().CreateDirectory(scratch));
  const absl::StatusOr<StoreReport> report = VerifyStore(written.path(), scratch);
  std::error_code error;
  fs::remove_all(scratch, error);
  RETURN_IF_ERROR(report.status());
  for (const Law& law : report->laws) {
    if (law.violations.empty()) continue;
    return absl::DataLossError(fmt::format("{} cannot be copied, because it does not hold what it promises ({}): {}",
                                           original, law.name, law.violations.front()));
  }
  return absl::OkStatus();
}

absl::Status WriteManifest(UnfinishedDirectory& to, const Manifest& manifest) {
  PosixFileSystem files;
  const auto write = [&](const ByteSink& take) { return take(ToText(manifest)); };
  return WriteFileWhole(files, to.path(), std::string(kBackupManifestName) + ".tmp", write,
                        [] { return std::string(kBackupManifestName); });
}

}  // namespace

absl::StatusOr<BackupSummary> BackUpStore(const BackUpParams& params) {
  const std::string store = WithoutSlash(params.store);
  BackupSummary summary{.time = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", params.now, absl::UTCTimeZone())};
  ASSIGN_OR_RETURN(const std::unique_ptr<UnfinishedDirectory> to, UnfinishedDirectory::Create(WithoutSlash(params.to)));
  Manifest manifest;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<StoreHold> hold, StoreHold::Take(store));
    ASSIGN_OR_RETURN(const DatabaseCopy copy, CopyDatabase(*hold, store, to->path() + "/tasks.db", CopyUse::kKeep));
    summary.schema_version = copy.schema_version;
    // After the database: what it has a record of was there before, and is there as long as the store is held.
    ASSIGN_OR_RETURN(const std::vector<std::string> paths, ListPayloads(*copy.connection, store, summary));
    for (const std::string& path : paths) RETURN_IF_ERROR(Add(store, *to, path, manifest, summary));
  }
  // Closed, the copied database is one file without a log.
  PosixFileSystem files;
  ASSIGN_OR_RETURN(const std::unique_ptr<File> database, files.Open(to->path() + "/tasks.db", FileSystem::kWrite));
  RETURN_IF_ERROR(database->Sync());
  ASSIGN_OR_RETURN(const std::unique_ptr<BlobView> bytes, files.Map(to->path() + "/tasks.db"));
  Sha256 hash;
  RETURN_IF_ERROR(bytes->ForEachPiece([&hash](std::string_view piece) {
    hash.Update(piece);
    return absl::OkStatus();
  }));
  manifest.entries.push_back({.digest = std::move(hash).Hex(), .path = "tasks.db"});
  ++summary.num_files;
  summary.num_bytes += bytes->size_bytes();
  RETURN_IF_ERROR(VerifyWritten(*to, store));
  manifest.time = summary.time;
  manifest.schema_version = summary.schema_version;
  RETURN_IF_ERROR(WriteManifest(*to, manifest));
  RETURN_IF_ERROR(to->Finish());
  return summary;
}

absl::StatusOr<BackupSummary> RestoreStore(const RestoreParams& params) {
  const std::string backup = WithoutSlash(params.backup);
  PosixFileSystem files;
  const std::string manifest_path = fmt::format("{}/{}", backup, kBackupManifestName);
  const absl::StatusOr<std::unique_ptr<BlobView>> file = files.Map(manifest_path);
  if (absl::IsNotFound(file.status())) {
    return absl::NotFoundError(fmt::format("{} is not a backup: it has no {}", backup, kBackupManifestName));
  }
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(const std::string text, (*file)->Read(0, (*file)->size_bytes()));
  ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text, manifest_path));
  ASSIGN_OR_RETURN(const std::unique_ptr<UnfinishedDirectory> to, UnfinishedDirectory::Create(WithoutSlash(params.to)));
  BackupSummary summary{.schema_version = manifest.schema_version, .time = manifest.time};
  Manifest restored;
  for (const Manifest::Entry& entry : manifest.entries) {
    const absl::Status status = Add(backup, *to, entry.path, restored, summary);
    if (absl::IsNotFound(status)) {
      return absl::DataLossError(fmt::format("the backup lacks {}/{}; use another backup", backup, entry.path));
    }
    RETURN_IF_ERROR(status);
    if (restored.entries.back().digest == entry.digest) continue;
    return absl::DataLossError(fmt::format("{}/{} is not what was backed up; use another backup", backup, entry.path));
  }
  RETURN_IF_ERROR(VerifyWritten(*to, backup));
  RETURN_IF_ERROR(to->Finish());
  return summary;
}

}  // namespace sheaf
