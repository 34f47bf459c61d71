// BlobFiles: a directory of immutable files named by the SHA-256 of their bytes. A file appears whole (written beside,
// flushed, renamed), and its digest is checked when a process opens it for the first time. Thread-safe.
#pragma once

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

  absl::StatusOr<std::string> Put(std::span<const std::string_view> pieces);
  // Takes a durable file whose bytes are known to have this digest.
  absl::Status Adopt(const std::string& path, const std::string& digest);
  bool Has(const std::string& digest);
  absl::StatusOr<std::shared_ptr<const BlobView>> OpenBlob(const std::string& digest);
  absl::Status Delete(const std::string& digest);
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

// Writes a file whole: beside, flushed, renamed, the directory flushed. On error nothing is left.
absl::Status WriteFileWhole(FileSystem& files, const std::string& directory, const std::string& name,
                            const std::string& temporary, std::span<const std::string_view> pieces);

}  // namespace sheaf
