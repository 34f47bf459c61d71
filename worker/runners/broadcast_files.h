// BroadcastFiles: broadcasts as files, so that executables can map them: one file for all tasks of a round.
//
//   BroadcastFiles files(scratch + "/broadcasts", bytes_max);
//   ASSIGN_OR_RETURN(const std::shared_ptr<const BroadcastFile> file, files.Hold(digest, bytes));
//   RETURN_IF_ERROR(directory.Link("params.safetensors", file->path()));
//
// A file is there while somebody holds it. The newest are held here, of up to `bytes_max` together. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/mutex.h"

namespace sheaf {

// Deletes the file when it goes.
class BroadcastFile {
 public:
  BroadcastFile(std::string path, int64_t size) : path_(std::move(path)), size_(size) {}
  BroadcastFile(const BroadcastFile&) = delete;
  BroadcastFile& operator=(const BroadcastFile&) = delete;
  ~BroadcastFile();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }

 private:
  const std::string path_;
  const int64_t size_;
};

class BroadcastFiles {
 public:
  // Makes `folder`.
  BroadcastFiles(std::string folder, int64_t bytes_max);

  const std::string& folder() const { return folder_; }

  // The file with `bytes`, whose SHA-256 is `digest`. INTERNAL if it cannot be written.
  absl::StatusOr<std::shared_ptr<const BroadcastFile>> Hold(const std::string& digest, std::string_view bytes)
      EXCLUDES(mutex_);

 private:
  const std::string folder_;
  const int64_t bytes_max_;
  Mutex mutex_;
  int64_t num_files_ GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::weak_ptr<const BroadcastFile>> by_digest_ GUARDED_BY(mutex_);
  // The newest first.
  std::list<std::shared_ptr<const BroadcastFile>> newest_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
