// FlushWatch: a FileSystem that remembers whether a flush has ever failed on it.
//
//   FlushWatch watch(files);
//   // Any thread writes and flushes through it.
//   RETURN_IF_ERROR(watch.status());   // INTERNAL, naming the file, from the first failure on.
//
// A kernel that could not write a page may mark it clean: a second flush of the same file succeeds and has written
// nothing. So whoever makes promises asks here first, whichever thread met the failure. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/files/file_system.h"

namespace sheaf {

class FlushWatch final : public FileSystem {
 public:
  // `files` must outlive this.
  explicit FlushWatch(FileSystem& files) : files_(files) {}

  absl::Status status() const EXCLUDES(mutex_);

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, Mode mode) override;
  absl::StatusOr<std::unique_ptr<BlobView>> Map(const std::string& path) override { return files_.Map(path); }
  absl::Status Rename(const std::string& from, const std::string& to) override { return files_.Rename(from, to); }
  absl::Status Link(const std::string& path, const std::string& name) override { return files_.Link(path, name); }
  absl::Status Unlink(const std::string& path) override { return files_.Unlink(path); }
  absl::Status CreateDirectory(const std::string& path) override { return files_.CreateDirectory(path); }
  absl::Status RemoveDirectory(const std::string& path) override { return files_.RemoveDirectory(path); }
  absl::Status SyncDirectory(const std::string& path) override { return Watch(files_.SyncDirectory(path)); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override { return files_.List(path); }
  absl::StatusOr<Stat> GetStat(const std::string& path) override { return files_.GetStat(path); }
  absl::Status DeleteHeld() override { return Watch(files_.DeleteHeld()); }

  // Returns the result of a flush, and keeps it if it is the first that failed.
  absl::Status Watch(absl::Status flushed) EXCLUDES(mutex_);

 private:
  FileSystem& files_;
  mutable Mutex mutex_;
  absl::Status status_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
