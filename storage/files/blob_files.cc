#include "storage/files/blob_files.h"

#include <fmt/format.h>

#include "base/checksum.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr size_t kWriteBytes = 256 << 10;
// Bytes that a flush in between waits for: some ten milliseconds on a slow disk.
constexpr int64_t kFlushBytes = 8 << 20;

absl::Status NoSuchBlob(const std::string& digest) {
  return absl::NotFoundError(fmt::format("there is no blob {}", digest));
}
}  // namespace

absl::Status WriteFileWhole(FileSystem& files, const std::string& directory, const std::string& temporary,
                            const std::function<absl::Status(const ByteSink& take)>& write,
                            const std::function<std::string()>& name, const std::function<std::string()>& head) {
  const std::string path = directory + "/" + temporary;
  const auto write_all = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const std::unique_ptr<File> file, files.Open(path, FileSystem::kCreate));
    RETURN_IF_ERROR(file->Truncate(0));
    int64_t offset = 0;
    int64_t unflushed_bytes = 0;
    const auto put = [&](std::string_view bytes) -> absl::Status {
      RETURN_IF_ERROR(file->WriteAt(offset, bytes));
      offset += static_cast<int64_t>(bytes.size());
      unflushed_bytes += static_cast<int64_t>(bytes.size());
      if (unflushed_bytes < kFlushBytes) return absl::OkStatus();
      unflushed_bytes = 0;
      return file->Sync();
    };
    // Small pieces together.
    std::string waiting;
    const absl::Status given = write([&](std::string_view piece) -> absl::Status {
      if (waiting.size() + piece.size() > kWriteBytes) {
        RETURN_IF_ERROR(put(waiting));
        waiting.clear();
      }
      if (piece.size() > kWriteBytes) return put(piece);
      waiting += piece;
      return absl::OkStatus();
    });
    RETURN_IF_ERROR(given);
    RETURN_IF_ERROR(put(waiting));
    if (head) RETURN_IF_ERROR(file->WriteAt(0, head()));
    RETURN_IF_ERROR(file->Sync());
    return files.Rename(path, directory + "/" + name());
  };
  if (absl::Status status = write_all(); !status.ok()) {
    files.Unlink(path).IgnoreError();
    return status;
  }
  return files.SyncDirectory(directory);
}

absl::Status BlobFiles::Open() {
  RETURN_IF_ERROR(files_.CreateDirectory(directory_));
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(directory_));
  for (const std::string& name : names) {
    if (IsSha256Hex(name)) continue;
    const absl::Status deleted = files_.Unlink(directory_ + "/" + name);
    if (!deleted.ok()) LogWarning("what is no blob stays among them: {}", deleted.ToString());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> BlobFiles::Write(const std::function<absl::Status(const ByteSink& take)>& write) {
  int64_t number;
  {
    MutexLock lock(mutex_);
    number = ++num_temporaries_;
  }
  Sha256 hash;
  std::string digest;
  RETURN_IF_ERROR(WriteFileWhole(
      files_, directory_, fmt::format("{}{}", number, kTemporarySuffix),
      [&](const ByteSink& take) {
        return write([&](std::string_view piece) {
          hash.Update(piece);
          return take(piece);
        });
      },
      // One that is there already is replaced by its equal, and is new again.
      [&] { return digest = std::move(hash).Hex(); }));
  MarkChecked(digest);
  return digest;
}

absl::Status BlobFiles::Adopt(const std::string& path, const std::string& digest) {
  RETURN_IF_ERROR(files_.Rename(path, PathOf(digest)));
  RETURN_IF_ERROR(files_.SyncDirectory(directory_));
  MarkChecked(digest);
  return absl::OkStatus();
}

void BlobFiles::MarkChecked(const std::string& digest) {
  MutexLock lock(mutex_);
  checked_.insert(digest);
}

absl::StatusOr<int64_t> BlobFiles::GetSize(const std::string& digest) {
  if (!IsSha256Hex(digest)) return NoSuchBlob(digest);
  const absl::StatusOr<FileSystem::Stat> stat = files_.GetStat(PathOf(digest));
  if (absl::IsNotFound(stat.status()) || (stat.ok() && !stat->is_file)) return NoSuchBlob(digest);
  RETURN_IF_ERROR(stat.status());
  return stat->size_bytes;
}

absl::StatusOr<std::shared_ptr<const BlobView>> BlobFiles::OpenBlob(const std::string& digest) {
  if (!IsSha256Hex(digest)) return NoSuchBlob(digest);
  bool is_checked;
  {
    MutexLock lock(mutex_);
    if (auto found = open_.find(digest); found != open_.end()) {
      if (auto view = found->second.lock()) return view;
      open_.erase(found);
    }
    is_checked = checked_.contains(digest);
  }
  auto mapped = files_.Map(PathOf(digest));
  if (absl::IsNotFound(mapped.status())) return NoSuchBlob(digest);
  RETURN_IF_ERROR(mapped.status());
  std::shared_ptr<const BlobView> view = *std::move(mapped);
  if (!is_checked) {
    Sha256 hash;
    RETURN_IF_ERROR(view->ForEachPiece([&hash](std::string_view piece) {
      hash.Update(piece);
      return absl::OkStatus();
    }));
    is_checked = std::move(hash).Hex() == digest;
  }
  if (!is_checked) {
    return absl::DataLossError(fmt::format("the bytes of {} do not have the digest it is named by", PathOf(digest)));
  }
  MutexLock lock(mutex_);
  checked_.insert(digest);
  open_[digest] = view;
  return view;
}

absl::StatusOr<PayloadStore::BlobRemains> BlobFiles::Delete(const std::string& digest) {
  PayloadStore::BlobRemains remains;
  if (!IsSha256Hex(digest)) return remains;
  {
    MutexLock lock(mutex_);
    open_.erase(digest);
    checked_.erase(digest);
  }
  // A file that is open keeps its bytes until it is closed. If it cannot be opened they are freed here.
  if (absl::StatusOr<std::unique_ptr<File>> file = files_.Open(PathOf(digest), FileSystem::kRead); file.ok()) {
    remains = *std::move(file);
  }
  RETURN_IF_ERROR(files_.Unlink(PathOf(digest)));
  return remains;
}

absl::StatusOr<std::vector<PayloadStore::BlobInfo>> BlobFiles::List() {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(directory_));
  std::vector<PayloadStore::BlobInfo> blobs;
  for (const std::string& name : names) {
    if (!IsSha256Hex(name)) continue;
    auto stat = files_.GetStat(PathOf(name));
    if (absl::IsNotFound(stat.status()) || (stat.ok() && !stat->is_file)) continue;
    RETURN_IF_ERROR(stat.status());
    blobs.push_back({.digest = name, .size_bytes = stat->size_bytes});
  }
  return blobs;
}

}  // namespace sheaf
