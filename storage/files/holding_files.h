// HoldingFiles: a FileSystem that puts deletions off while somebody holds the store (store_hold.h). To its user they
// have happened: the name is gone from lists and cannot be opened. What was put off is done by DeleteHeld, a few at a
// time; what is left when the process ends, or cannot be deleted, is for the next start, which deletes what no record
// names.
#pragma once

#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "storage/files/file_system.h"
#include "storage/files/store_hold.h"

namespace sheaf {

class HoldingFiles final : public FileSystem {
 public:
  // `gate` must outlive it.
  HoldingFiles(std::unique_ptr<FileSystem> files, HoldGate& gate) : files_(std::move(files)), gate_(gate) {}

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path, Mode mode) override EXCLUDES(mutex_);
  absl::StatusOr<std::unique_ptr<BlobView>> Map(const std::string& path) override EXCLUDES(mutex_);
  absl::Status Rename(const std::string& from, const std::string& to) override EXCLUDES(mutex_);
  absl::Status Link(const std::string& path, const std::string& name) override EXCLUDES(mutex_);
  absl::Status Unlink(const std::string& path) override EXCLUDES(mutex_);
  absl::Status CreateDirectory(const std::string& path) override EXCLUDES(mutex_);
  absl::Status RemoveDirectory(const std::string& path) override EXCLUDES(mutex_);
  absl::Status SyncDirectory(const std::string& path) override { return files_->SyncDirectory(path); }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override EXCLUDES(mutex_);
  absl::StatusOr<Stat> GetStat(const std::string& path) override EXCLUDES(mutex_);
  absl::Status DeleteHeld() override EXCLUDES(mutex_);

 private:
  // A commit waits for them, and for the flushes of their directories.
  static constexpr int kDeletionsPerCall = 16;

  struct Deletion {
    std::string path;
    bool is_directory = false;
  };

  bool IsHeld(const std::string& path) EXCLUDES(mutex_);
  // Deletes at last what is held under a name that is given again. Only what nobody else reads is: files that are not
  // whole yet, and segments that no record names.
  absl::Status MakeWay(const std::string& path) REQUIRES(mutex_);
  // Tries the next few deletions once each. The status of the flushes.
  absl::Status DeleteSome() REQUIRES(mutex_);

  const std::unique_ptr<FileSystem> files_;
  HoldGate& gate_;
  Mutex mutex_;
  // Deleted as far as anybody is told, and there still.
  std::set<std::string> files_held_ GUARDED_BY(mutex_);
  std::set<std::string> directories_held_ GUARDED_BY(mutex_);
  // Those of them that were not tried yet, a directory behind what is in it; and some that have been made anew since.
  std::deque<Deletion> deletions_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
