#include "storage/files/holding_files.h"

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {

bool HoldingFiles::IsHeld(const std::string& path) {
  MutexLock lock(mutex_);
  return files_held_.contains(path);
}

absl::Status HoldingFiles::MakeWay(const std::string& path) {
  if (!files_held_.contains(path)) return absl::OkStatus();
  RETURN_IF_ERROR(files_->Unlink(path));
  files_held_.erase(path);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<File>> HoldingFiles::Open(const std::string& path, Mode mode) {
  if (IsHeld(path)) {
    if (mode != kCreate) return FileError(ENOENT, "open", path);
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(MakeWay(path));
  }
  return files_->Open(path, mode);
}

absl::StatusOr<std::unique_ptr<BlobView>> HoldingFiles::Map(const std::string& path) {
  if (IsHeld(path)) return FileError(ENOENT, "open", path);
  return files_->Map(path);
}

absl::Status HoldingFiles::Rename(const std::string& from, const std::string& to) {
  // At once: DeleteHeld must not take what is there from now on for what was there before.
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(files_->Rename(from, to));
  files_held_.erase(to);
  return absl::OkStatus();
}

absl::Status HoldingFiles::Link(const std::string& path, const std::string& name) {
  MutexLock lock(mutex_);
  if (files_held_.contains(path)) return FileError(ENOENT, "link", path);
  RETURN_IF_ERROR(MakeWay(name));
  return files_->Link(path, name);
}

absl::Status HoldingFiles::Unlink(const std::string& path) {
  if (gate_.Enter()) {
    absl::Status status = files_->Unlink(path);
    gate_.Leave();
    return status;
  }
  if (!files_->GetStat(path).ok()) return absl::OkStatus();
  MutexLock lock(mutex_);
  if (files_held_.insert(path).second) deletions_.push_back({.path = path, .is_directory = false});
  return absl::OkStatus();
}

absl::Status HoldingFiles::CreateDirectory(const std::string& path) {
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(files_->CreateDirectory(path));
  directories_held_.erase(path);
  return absl::OkStatus();
}

absl::Status HoldingFiles::RemoveDirectory(const std::string& path) {
  {
    MutexLock lock(mutex_);
    const auto inside = files_held_.lower_bound(path + "/");
    if (inside != files_held_.end() && inside->rfind(path + "/", 0) == 0) {
      if (directories_held_.insert(path).second) deletions_.push_back({.path = path, .is_directory = true});
      return absl::OkStatus();
    }
  }
  return files_->RemoveDirectory(path);
}

absl::StatusOr<std::vector<std::string>> HoldingFiles::List(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_->List(path));
  MutexLock lock(mutex_);
  std::erase_if(names, [&](const std::string& name) REQUIRES(mutex_) {
    return files_held_.contains(path + "/" + name) || directories_held_.contains(path + "/" + name);
  });
  return names;
}

absl::StatusOr<FileSystem::Stat> HoldingFiles::GetStat(const std::string& path) {
  if (IsHeld(path)) return FileError(ENOENT, "look at", path);
  return files_->GetStat(path);
}

absl::Status HoldingFiles::DeleteHeld() {
  MutexLock lock(mutex_);
  if (deletions_.empty() || !gate_.Enter()) return absl::OkStatus();
  absl::Status flushed = DeleteSome();
  gate_.Leave();
  return flushed;
}

absl::Status HoldingFiles::DeleteSome() {
  std::set<std::string> changed;
  for (int i = 0; i < kDeletionsPerCall && !deletions_.empty(); ++i) {
    const Deletion deletion = std::move(deletions_.front());
    deletions_.pop_front();
    std::set<std::string>& held = deletion.is_directory ? directories_held_ : files_held_;
    if (!held.contains(deletion.path)) continue;
    const absl::Status deleted =
        deletion.is_directory ? files_->RemoveDirectory(deletion.path) : files_->Unlink(deletion.path);
    if (!deleted.ok()) {
      // It stays hidden: to everybody else it is gone.
      LogWarning("what was deleted during a backup stays on disk until the next start: {}", deleted.ToString());
      continue;
    }
    held.erase(deletion.path);
    if (deletion.is_directory) changed.erase(deletion.path);
    changed.insert(deletion.path.substr(0, deletion.path.rfind('/')));
  }
  absl::Status flushed;
  for (const std::string& directory : changed) {
    const absl::Status status = files_->SyncDirectory(directory);
    // One that was deleted meanwhile needs no flush.
    if (!absl::IsNotFound(status)) flushed.Update(status);
  }
  return flushed;
}

}  // namespace sheaf
