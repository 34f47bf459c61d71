#include "storage/files/holding_files.h"

#include <algorithm>
#include <cerrno>

#include "base/status_macros.h"

namespace sheaf {

bool HoldingFiles::IsHeld(const std::string& path) {
  MutexLock lock(mutex_);
  return files_held_.contains(path);
}

absl::StatusOr<std::unique_ptr<File>> HoldingFiles::Open(const std::string& path, Mode mode) {
  if (IsHeld(path)) {
    if (mode != kCreate) return FileError(ENOENT, "open", path);
    // Only what nobody else reads is made again under its old name: files that are not whole yet.
    MutexLock lock(mutex_);
    if (files_held_.contains(path)) {
      RETURN_IF_ERROR(files_->Unlink(path));
      files_held_.erase(path);
    }
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

absl::Status HoldingFiles::Unlink(const std::string& path) {
  if (gate_.Enter()) {
    const absl::Status status = files_->Unlink(path);
    gate_.Leave();
    return status;
  }
  if (!files_->GetStat(path).ok()) return absl::OkStatus();
  MutexLock lock(mutex_);
  files_held_.insert(path);
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
      directories_held_.insert(path);
      return absl::OkStatus();
    }
  }
  return files_->RemoveDirectory(path);
}

absl::StatusOr<std::vector<std::string>> HoldingFiles::List(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_->List(path));
  MutexLock lock(mutex_);
  std::erase_if(names, [&](const std::string& name) {
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
  if (files_held_.empty() && directories_held_.empty()) return absl::OkStatus();
  if (!gate_.Enter()) return absl::OkStatus();
  absl::Status status;
  std::set<std::string> changed;
  while (status.ok() && !files_held_.empty()) {
    const std::string& path = *files_held_.begin();
    status = files_->Unlink(path);
    if (!status.ok()) break;
    changed.insert(path.substr(0, path.rfind('/')));
    files_held_.erase(files_held_.begin());
  }
  while (status.ok() && !directories_held_.empty()) {
    const std::string path = *directories_held_.begin();
    status = files_->RemoveDirectory(path);
    if (!status.ok()) break;
    changed.erase(path);
    changed.insert(path.substr(0, path.rfind('/')));
    directories_held_.erase(path);
  }
  for (const std::string& directory : changed) {
    if (status.ok()) status = files_->SyncDirectory(directory);
  }
  gate_.Leave();
  return status;
}

}  // namespace sheaf
