#include "worker/runners/broadcast_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status_macros.h"
#include "worker/runners/task_directory.h"

namespace sheaf {

BroadcastFile::~BroadcastFile() { unlink(path_.c_str()); }

BroadcastFiles::BroadcastFiles(std::string folder, int64_t bytes_max)
    : folder_(std::move(folder)), bytes_max_(bytes_max) {
  // If it fails, Hold does.
  mkdir(folder_.c_str(), 0700);
}

absl::StatusOr<std::shared_ptr<const BroadcastFile>> BroadcastFiles::Hold(const std::string& digest,
                                                                          std::string_view bytes) {
  // Held while the file is written: whoever else needs it had to wait for it anyway.
  MutexLock lock(mutex_);
  if (const auto found = by_digest_.find(digest); found != by_digest_.end()) {
    if (std::shared_ptr<const BroadcastFile> file = found->second.lock()) return file;
    by_digest_.erase(found);
  }
  ASSIGN_OR_RETURN(const TaskDirectory directory, TaskDirectory::Open(folder_));
  // A number, so that a file that is about to go and its successor do not meet.
  const std::string name = fmt::format("{}-{}.safetensors", digest, ++num_files_);
  // It exists before the file does, so that half a file goes with it.
  auto file =
      std::make_shared<const BroadcastFile>(fmt::format("{}/{}", folder_, name), static_cast<int64_t>(bytes.size()));
  RETURN_IF_ERROR(directory.Write(name, bytes));
  chmod(file->path().c_str(), 0400);
  by_digest_[digest] = file;
  newest_.push_front(file);
  int64_t held = 0;
  for (auto at = newest_.begin(); at != newest_.end();) {
    held += (*at)->size();
    at = held > bytes_max_ ? newest_.erase(at) : std::next(at);
  }
  std::erase_if(by_digest_, [](const auto& entry) { return entry.second.expired(); });
  return file;
}

}  // namespace sheaf
