#include "storage/files/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/files/file_error.h"

namespace sheaf {
namespace {

// What this thread reads of a mapping, as long as this lives.
class Guard {
 public:
  Guard(const char* data, int64_t size, std::atomic<bool>& is_damaged)
      : begin_(data), end_(data + size), is_damaged_(is_damaged), outer_(std::exchange(of_thread, this)) {
    // What is between the two is not moved across them.
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Guard() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    of_thread = outer_;
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  // Puts zeros from the page of `address` on. False if no reading of this thread is there. Called by a signal handler.
  static bool Replace(const char* address) {
    for (Guard* guard = of_thread; guard != nullptr; guard = guard->outer_) {
      if (address < guard->begin_ || guard->end_ <= address) continue;
      char* const page = const_cast<char*>(guard->begin_) + (address - guard->begin_) / page_bytes * page_bytes;
      const auto rest = static_cast<size_t>(guard->end_ - page);
      if (::mmap(page, rest, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) return false;
      guard->is_damaged_.store(true, std::memory_order_relaxed);
      return true;
    }
    return false;
  }

  static inline int64_t page_bytes = 0;

 private:
  static thread_local Guard* of_thread;
  // Begins at a page.
  const char* const begin_;
  const char* const end_;
  std::atomic<bool>& is_damaged_;
  Guard* const outer_;
};

thread_local Guard* Guard::of_thread = nullptr;

struct sigaction action_before;

extern "C" void OnBusError(int signal, siginfo_t* info, void*) {
  const int error_before = errno;
  const bool is_replaced = info->si_code > 0 && Guard::Replace(static_cast<const char*>(info->si_addr));
  errno = error_before;
  if (is_replaced) return;
  // Not of our making: as if this handler were not there.
  sigaction(SIGBUS, &action_before, nullptr);
  raise(signal);
}

void InstallHandler() {
  static const bool is_installed = [] {
    Guard::page_bytes = ::sysconf(_SC_PAGESIZE);
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &action_before) == 0;
  }();
  SHEAF_CHECK(is_installed, "cannot install a handler for SIGBUS");
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
  {
    const Guard guard(data_, size_bytes_, is_damaged_);
    for (const ByteRange& range : ranges) to.append(data_ + range.offset, static_cast<size_t>(range.length));
  }
  absl::Status status = CheckRead();
  if (!status.ok()) to.resize(size_before);
  return status;
}

absl::Status MappedFile::Visit(const std::function<absl::Status(std::string_view bytes)>& read) const {
  absl::Status status;
  {
    const Guard guard(data_, size_bytes_, is_damaged_);
    status = read({data_, static_cast<size_t>(size_bytes_)});
  }
  RETURN_IF_ERROR(CheckRead());
  return status;
}

absl::Status MappedFile::CheckRead() const {
  struct stat stat;
  if (::fstat(descriptor_, &stat) != 0) return FileError(errno, "look at", path_);
  if (stat.st_size < size_bytes_) {
    return absl::DataLossError(
        fmt::format("{} has {} bytes and had {}: something else has cut it off; restore the store", path_,
                    static_cast<int64_t>(stat.st_size), size_bytes_));
  }
  return is_damaged_.load(std::memory_order_relaxed) ? FileError(EIO, "read", path_) : absl::OkStatus();
}

}  // namespace sheaf
