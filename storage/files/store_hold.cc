#include "storage/files/store_hold.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "storage/files/file_system.h"

namespace sheaf {
namespace {

std::string PathIn(const std::string& directory) { return directory + "/HOLD"; }

}  // namespace

absl::StatusOr<std::unique_ptr<StoreHold>> StoreHold::Take(const std::string& directory) {
  const std::string path = PathIn(directory);
  // A lock needs no right to write.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 && errno == ENOENT) return std::unique_ptr<StoreHold>(new StoreHold(-1));
  if (descriptor < 0) return FileError(errno, "open", path);
  std::unique_ptr<StoreHold> hold(new StoreHold(descriptor));
  while (::flock(descriptor, LOCK_EX) != 0) {
    if (errno != EINTR) return FileError(errno, "lock", path);
  }
  return hold;
}

StoreHold::~StoreHold() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

absl::StatusOr<std::unique_ptr<HoldGate>> HoldGate::Open(const std::string& directory) {
  const std::string path = PathIn(directory);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) return FileError(errno, "open", path);
  return std::unique_ptr<HoldGate>(new HoldGate(descriptor));
}

HoldGate::~HoldGate() { ::close(descriptor_); }

bool HoldGate::Enter() {
  MutexLock lock(mutex_);
  if (num_inside_ == 0 && ::flock(descriptor_, LOCK_SH | LOCK_NB) != 0) return false;
  ++num_inside_;
  return true;
}

void HoldGate::Leave() {
  MutexLock lock(mutex_);
  if (--num_inside_ == 0) ::flock(descriptor_, LOCK_UN);
}

}  // namespace sheaf
