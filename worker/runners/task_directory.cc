#include "worker/runners/task_directory.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregation/wire/safetensors.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr size_t kNameBytesMax = 128;
// Of a file that a stranger wrote.
constexpr SafetensorsLimits kLimits = {.header_bytes_max = 16 << 20, .tensors_max = 1 << 16, .name_bytes_max = 1024};

// A file of the directory, and no way out of it.
absl::Status CheckName(std::string_view name) {
  if (!name.empty() && name.size() <= kNameBytesMax && name.front() != '.' && name.find('/') == name.npos &&
      name.find('\0') == name.npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("'{}' is not the name of a file in the task's directory", name.substr(0, kNameBytesMax)));
}

absl::Status Errno(std::string_view name) { return absl::InternalError(fmt::format("{}: {}", name, strerror(errno))); }

absl::Status WriteAll(int file, std::string_view bytes, std::string_view name) {
  while (!bytes.empty()) {
    const ssize_t size = write(file, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Errno(name);
    bytes.remove_prefix(static_cast<size_t>(size));
  }
  return absl::OkStatus();
}

// INVALID_ARGUMENT if the file has become shorter.
absl::StatusOr<std::string> ReadRange(int file, int64_t begin, int64_t end, std::string_view name) {
  std::string bytes(static_cast<size_t>(end - begin), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size = pread(file, bytes.data() + done, bytes.size() - done, begin + static_cast<int64_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return Errno(name);
    if (size == 0) return absl::InvalidArgumentError(fmt::format("{} was cut off while it was read", name));
    done += static_cast<size_t>(size);
  }
  return bytes;
}

}  // namespace

absl::StatusOr<TaskDirectory> TaskDirectory::Open(std::string path) {
  Descriptor descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!descriptor) return Errno(path);
  return TaskDirectory(std::move(path), std::move(descriptor));
}

absl::Status TaskDirectory::Write(std::string_view name, std::string_view bytes) const {
  const Descriptor file(
      openat(descriptor_.get(), std::string(name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file && errno == EEXIST) return absl::AlreadyExistsError(fmt::format("there is a {} already", name));
  if (!file) return Errno(name);
  return WriteAll(file.get(), bytes, name);
}

absl::Status TaskDirectory::WriteTensors(std::string_view name, const std::vector<NamedTensor>& tensors) const {
  return Write(name, EncodeSafetensors(tensors, {}));
}

absl::Status TaskDirectory::Link(std::string_view name, const std::string& target) const {
  if (symlinkat(target.c_str(), descriptor_.get(), std::string(name).c_str()) != 0) return Errno(name);
  return absl::OkStatus();
}

absl::StatusOr<TaskDirectory::OpenFile> TaskDirectory::OpenToRead(std::string_view name, int64_t bytes_max) const {
  RETURN_IF_ERROR(CheckName(name));
  // A FIFO would keep whoever opens it waiting.
  OpenFile file{.descriptor = Descriptor(openat(descriptor_.get(), std::string(name).c_str(),
                                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC))};
  if (!file.descriptor) {
    if (errno == ENOENT) return absl::NotFoundError(fmt::format("there is no {}", name));
    if (errno == ELOOP) return absl::InvalidArgumentError(fmt::format("{} is a symbolic link", name));
    return absl::InvalidArgumentError(fmt::format("{} cannot be read: {}", name, strerror(errno)));
  }
  struct stat status = {};
  if (fstat(file.descriptor.get(), &status) != 0) return Errno(name);
  if (!S_ISREG(status.st_mode)) return absl::InvalidArgumentError(fmt::format("{} is not a regular file", name));
  if (status.st_size > bytes_max) {
    return absl::ResourceExhaustedError(
        fmt::format("{} has {} bytes, and at most {} are taken", name, status.st_size, bytes_max));
  }
  file.size = status.st_size;
  return file;
}

absl::StatusOr<std::string> TaskDirectory::Read(std::string_view name, int64_t bytes_max) const {
  ASSIGN_OR_RETURN(const OpenFile file, OpenToRead(name, bytes_max));
  return ReadRange(file.descriptor.get(), 0, file.size, name);
}

absl::StatusOr<std::vector<NamedTensor>> TaskDirectory::ReadTensors(std::string_view name, int64_t bytes_max) const {
  ASSIGN_OR_RETURN(const OpenFile file, OpenToRead(name, bytes_max));
  const int descriptor = file.descriptor.get();
  constexpr int64_t kPrefix = SafetensorsHeader::kPrefixBytes;
  ASSIGN_OR_RETURN(const std::string prefix, ReadRange(descriptor, 0, std::min(file.size, kPrefix), name));
  ASSIGN_OR_RETURN(const int64_t text_bytes, SafetensorsHeader::TextBytes(prefix, file.size, kLimits));
  ASSIGN_OR_RETURN(const std::string text, ReadRange(descriptor, kPrefix, kPrefix + text_bytes, name));
  ASSIGN_OR_RETURN(const SafetensorsHeader header, SafetensorsHeader::Parse(text, file.size, kLimits));
  std::vector<NamedTensor> tensors;
  for (const TensorEntry& entry : header.tensors()) {
    if (entry.dtype == v1::DTYPE_UNSPECIFIED) {
      return absl::InvalidArgumentError(fmt::format(
          "tensor '{}' has a dtype that is not taken; there are F32, F64, I32, I64, U64 and U8", entry.name));
    }
    ASSIGN_OR_RETURN(std::string data, ReadRange(descriptor, entry.begin, entry.end, name));
    tensors.push_back({.name = entry.name, .dtype = entry.dtype, .shape = entry.shape, .data = std::move(data)});
  }
  return tensors;
}

void TaskDirectory::Remove(std::string_view name) const {
  if (CheckName(name).ok()) unlinkat(descriptor_.get(), std::string(name).c_str(), 0);
}

}  // namespace sheaf
