// FileSystem: the few file operations that the payload store rests on, so that a test can make any of them fail.
//
//   PosixFileSystem files;
//   ASSIGN_OR_RETURN(auto file, files.Open("/var/lib/sheaf/x", FileSystem::kCreate));
//   RETURN_IF_ERROR(file->WriteAt(0, bytes));
//   RETURN_IF_ERROR(file->Sync());
//
// Codes: NOT_FOUND; RESOURCE_EXHAUSTED when the disk, the quota or the file size limit is full; PERMISSION_DENIED;
// INVALID_ARGUMENT for a name that is too long; UNIMPLEMENTED for what the file system cannot do; INTERNAL for any
// other I/O error. Each names the path. Thread-safe, but for two writes to the same range of a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_sink.h"
#include "storage/blob_view.h"
#include "storage/files/file_error.h"

namespace sheaf {

class File {
 public:
  virtual ~File() = default;
  virtual absl::Status WriteAt(int64_t offset, std::string_view bytes) = 0;
  // Fewer bytes than asked for at the end of the file.
  virtual absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t length) = 0;
  virtual absl::StatusOr<int64_t> Size() = 0;
  virtual absl::Status Truncate(int64_t size) = 0;
  // Makes the bytes durable, not the name: that takes SyncDirectory.
  virtual absl::Status Sync() = 0;
  // Begins to write these bytes to the disk, so that the next Sync has less to wait for. Promises nothing.
  virtual void StartFlush(int64_t offset, int64_t length) = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  enum Mode { kRead, kWrite, kCreate };
  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, Mode mode) = 0;
  // The whole file, mapped for reading.
  virtual absl::StatusOr<std::unique_ptr<BlobView>> Map(const std::string& path) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Gives the file another name, by which it stays when either is deleted.
  virtual absl::Status Link(const std::string& path, const std::string& name) = 0;
  // OK also if there is none.
  virtual absl::Status Unlink(const std::string& path) = 0;
  // OK also if it is there; parents must be.
  virtual absl::Status CreateDirectory(const std::string& path) = 0;
  // OK also if there is none. The directory must be empty.
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // The names in a directory, sorted; none if it does not exist.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;

  struct Stat {
    int64_t size_bytes = 0;
    // A regular file: neither a directory nor anything else.
    bool is_file = false;
  };
  virtual absl::StatusOr<Stat> GetStat(const std::string& path) = 0;

  // Deletes some of what Unlink and RemoveDirectory have put off, for file systems that do so (holding_files.h). What
  // cannot be deleted is logged: an error is that of a flush.
  virtual absl::Status DeleteHeld() { return absl::OkStatus(); }
};

class PosixFileSystem final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, Mode mode) override;
  absl::StatusOr<std::unique_ptr<BlobView>> Map(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& path, const std::string& name) override;
  absl::Status Unlink(const std::string& path) override;
  absl::Status CreateDirectory(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::StatusOr<Stat> GetStat(const std::string& path) override;
};

// Up to `length` bytes from `offset` on, in pieces of about a megabyte; fewer where the file ends before. Codes of
// both.
absl::Status ReadFilePieces(File& file, int64_t offset, int64_t length, const ByteSink& take);

// A name of one path component for any text, and back.
std::string EncodeFileName(std::string_view text);
std::string DecodeFileName(std::string_view name);

}  // namespace sheaf
