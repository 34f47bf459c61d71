// BlobFiles: a directory of immutable files named by the SHA-256 of their bytes. A file appears whole (written beside,
// flushed, renamed), and its digest is checked when a process opens it for the first time. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/files/file_system.h"
#include "storage/payload_store.h"

namespace sheaf {

class BlobFiles {
 public:
  BlobFiles(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  // Creates the directory and removes what a crash left half-written.
  absl::Status Open();

  absl::StatusOr<std::string> Write(const std::function<absl::Status(const ByteSink& take)>& write);
  // Takes a durable file whose bytes are known to have this digest.
  absl::Status Adopt(const std::string& path, const std::string& digest);
  absl::StatusOr<int64_t> GetSize(const std::string& digest);
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenBlob(const std::string& digest);
  absl::StatusOr<PayloadStore::BlobRemains> Delete(const std::string& digest);
  absl::StatusOr<std::vector<PayloadStore::BlobInfo>> List();

 private:
  std::string PathOf(const std::string& digest) const { return directory_ + "/" + digest; }
  void MarkChecked(const std::string& digest) EXCLUDES(mutex_);

  FileSystem& files_;
  const std::string directory_;
  Mutex mutex_;
  int64_t num_temporaries_ GUARDED_BY(mutex_) = 0;
  std::set<std::string> checked_ GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<const BlobView>> open_ GUARDED_BY(mutex_);
};

// Writes a file whole, of the bytes that `write` gives: beside, flushed, renamed to what `name` then returns, the
// directory flushed. If there is a `head` it overwrites, in the end, the first of these bytes. On error nothing is
// left. Large files are flushed while they are written: else the last flush, and with it every other flush of the same
// disk, would wait for all of it.
absl::Status WriteFileWhole(FileSystem& files, const std::string& directory, const std::string& temporary,
                            const std::function<absl::Status(const ByteSink& take)>& write,
                            const std::function<std::string()>& name,
                            const std::function<std::string()>& head = nullptr);

}  // namespace sheaf
