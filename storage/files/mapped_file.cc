#include "storage/files/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/files/file_error.h"

namespace sheaf {
namespace {

// The copy that this thread is making, from [begin, end).
struct Guard {
  sigjmp_buf back;
  const char* begin = nullptr;
  const char* end = nullptr;
};
thread_local Guard* guard_of_thread = nullptr;

struct sigaction action_before;

extern "C" void OnBusError(int signal, siginfo_t* info, void*) {
  Guard* const guard = guard_of_thread;
  const char* const address = static_cast<const char*>(info->si_addr);
  if (guard != nullptr && info->si_code > 0 && guard->begin <= address && address < guard->end) {
    siglongjmp(guard->back, 1);
  }
  // Not of our making: as if this handler were not there.
  sigaction(SIGBUS, &action_before, nullptr);
  raise(signal);
}

void InstallHandler() {
  static const bool is_installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    // The handler may not return: then nothing would unblock the signal.
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &action_before) == 0;
  }();
  SHEAF_CHECK(is_installed, "cannot install a handler for SIGBUS");
}

// Appends ranges of [data, data + size) to `to`, which has the capacity. False if some are not there.
//
// The signal's way back skips the frames of append: none of them has anything to destroy, and none has changed `to`
// before its last byte was copied.
bool AppendGuarded(const char* data, int64_t size, std::span<const ByteRange> ranges, std::string& to) {
  Guard guard;
  guard.begin = data;
  guard.end = data + size;
  if (sigsetjmp(guard.back, /*savemask=*/0) != 0) {
    guard_of_thread = nullptr;
    return false;
  }
  guard_of_thread = &guard;
  // What is between the two is not moved across them.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  for (const ByteRange& range : ranges) to.append(data + range.offset, static_cast<size_t>(range.length));
  std::atomic_signal_fence(std::memory_order_seq_cst);
  guard_of_thread = nullptr;
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BlobView>> MappedFile::Open(const std::string& path) {
  InstallHandler();
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "open", path);
  struct stat stat;
  void* data = nullptr;
  int error = ::fstat(descriptor, &stat) == 0 ? 0 : errno;
  if (error == 0 && stat.st_size > 0) {
    data = ::mmap(nullptr, static_cast<size_t>(stat.st_size), PROT_READ, MAP_SHARED, descriptor, 0);
    if (data == MAP_FAILED) error = errno;
  }
  if (error != 0) {
    ::close(descriptor);
    return FileError(error, "map", path);
  }
  return std::unique_ptr<BlobView>(new MappedFile(path, descriptor, static_cast<const char*>(data), stat.st_size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), static_cast<size_t>(size_bytes_));
  ::close(descriptor_);
}

absl::Status MappedFile::Append(std::span<const ByteRange> ranges, std::string& to) const {
  const size_t size_before = to.size();
  size_t size_after = size_before;
  for (const ByteRange& range : ranges) {
    SHEAF_CHECK(0 <= range.offset && 0 <= range.length && range.length <= size_bytes_ - range.offset,
                "bytes {} to {} + {} are not in {}", range.offset, range.offset, range.length, path_);
    size_after += static_cast<size_t>(range.length);
  }
  if (size_after > to.capacity()) to.reserve(std::max(size_after, 2 * to.capacity()));
  const bool is_there = AppendGuarded(data_, size_bytes_, ranges, to);
  absl::Status status = CheckSize();
  if (status.ok() && !is_there) status = FileError(EIO, "read", path_);
  if (!status.ok()) to.resize(size_before);
  return status;
}

absl::Status MappedFile::CheckSize() const {
  struct stat stat;
  if (::fstat(descriptor_, &stat) != 0) return FileError(errno, "look at", path_);
  if (stat.st_size >= size_bytes_) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{} has {} bytes and had {}: something else has cut it off; restore the store",
                                         path_, static_cast<int64_t>(stat.st_size), size_bytes_));
}

}  // namespace sheaf
