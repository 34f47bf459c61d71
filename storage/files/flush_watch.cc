#include "storage/files/flush_watch.h"

#include <utility>

#include "base/status_macros.h"

namespace sheaf {
namespace {

class WatchedFile final : public File {
 public:
  WatchedFile(FlushWatch& watch, std::unique_ptr<File> file) : watch_(watch), file_(std::move(file)) {}

  absl::Status WriteAt(int64_t offset, std::string_view bytes) override { return file_->WriteAt(offset, bytes); }
  absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t length) override { return file_->ReadAt(offset, length); }
  absl::StatusOr<int64_t> Size() override { return file_->Size(); }
  absl::Status Truncate(int64_t size) override { return file_->Truncate(size); }
  absl::Status Sync() override { return watch_.Watch(file_->Sync()); }
  void StartFlush(int64_t offset, int64_t length) override { file_->StartFlush(offset, length); }

 private:
  FlushWatch& watch_;
  const std::unique_ptr<File> file_;
};

}  // namespace

absl::Status FlushWatch::status() const {
  MutexLock lock(mutex_);
  return status_;
}

absl::StatusOr<std::unique_ptr<File>> FlushWatch::Open(const std::string& path, Mode mode) {
  ASSIGN_OR_RETURN(std::unique_ptr<File> file, files_.Open(path, mode));
  if (mode == kRead) return file;
  return std::make_unique<WatchedFile>(*this, std::move(file));
}

absl::Status FlushWatch::Watch(absl::Status flushed) {
  // A directory that was deleted meanwhile needs no flush.
  if (flushed.ok() || absl::IsNotFound(flushed)) return flushed;
  MutexLock lock(mutex_);
  status_.Update(flushed);
  return flushed;
}

}  // namespace sheaf
