#include "storage/files/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/status_macros.h"
#include "storage/files/mapped_file.h"

namespace sheaf {
namespace {

class PosixFile final : public File {
 public:
  PosixFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~PosixFile() override { ::close(descriptor_); }

  absl::Status WriteAt(int64_t offset, std::string_view bytes) override {
    while (!bytes.empty()) {
      ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return FileError(errno, "write", path_);
      bytes.remove_prefix(written);
      offset += written;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadAt(int64_t offset, int64_t length) override {
    auto size = Size();
    if (!size.ok()) return size.status();
    std::string bytes(std::clamp<int64_t>(*size - offset, 0, length), '\0');
    size_t num_read = 0;
    while (num_read < bytes.size()) {
      ssize_t got = ::pread(descriptor_, bytes.data() + num_read, bytes.size() - num_read, offset + num_read);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return FileError(errno, "read", path_);
      if (got == 0) break;
      num_read += got;
    }
    bytes.resize(num_read);
    return bytes;
  }

  absl::StatusOr<int64_t> Size() override {
    struct stat stat;
    if (::fstat(descriptor_, &stat) != 0) return FileError(errno, "look at", path_);
    return stat.st_size;
  }

  absl::Status Truncate(int64_t size) override {
    return ::ftruncate(descriptor_, size) == 0 ? absl::OkStatus() : FileError(errno, "shorten", path_);
  }

  absl::Status Sync() override {
    if (::fdatasync(descriptor_) == 0) return absl::OkStatus();
    // What a failed flush has dropped cannot be known, a full disk included: never a code that invites a retry.
    return absl::InternalError(fmt::format("cannot flush {}: {}", path_, std::strerror(errno)));
  }

  // What goes wrong here the next flush says.
  void StartFlush(int64_t offset, int64_t length) override {
    ::sync_file_range(descriptor_, offset, length, SYNC_FILE_RANGE_WRITE);
  }

 private:
  const int descriptor_;
  const std::string path_;
};

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

}  // namespace

absl::Status ReadFilePieces(File& file, int64_t offset, int64_t length, const ByteSink& take) {
  constexpr int64_t kPieceBytes = 1 << 20;
  while (length > 0) {
    ASSIGN_OR_RETURN(const std::string piece, file.ReadAt(offset, std::min(length, kPieceBytes)));
    if (piece.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(take(piece));
    offset += static_cast<int64_t>(piece.size());
    length -= static_cast<int64_t>(piece.size());
  }
  return absl::OkStatus();
}

std::string EncodeFileName(std::string_view text) {
  std::string name;
  for (char c : text) {
    if (IsPlain(c)) {
      name.push_back(c);
    } else {
      name += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    }
  }
  return name;
}

std::string DecodeFileName(std::string_view name) {
  std::string text;
  auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '%' && i + 2 < name.size()) {
      text.push_back(static_cast<char>(digit(name[i + 1]) * 16 + digit(name[i + 2])));
      i += 2;
    } else {
      text.push_back(name[i]);
    }
  }
  return text;
}

absl::StatusOr<std::unique_ptr<File>> PosixFileSystem::Open(const std::string& path, Mode mode) {
  int flags = O_CLOEXEC | (mode == kRead ? O_RDONLY : O_RDWR) | (mode == kCreate ? O_CREAT : 0);
  int descriptor = ::open(path.c_str(), flags, 0600);
  if (descriptor < 0) return FileError(errno, "open", path);
  return std::make_unique<PosixFile>(descriptor, path);
}

absl::StatusOr<std::unique_ptr<BlobView>> PosixFileSystem::Map(const std::string& path) {
  return MappedFile::Open(path);
}

absl::Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus() : FileError(errno, "rename", from);
}

absl::Status PosixFileSystem::Link(const std::string& path, const std::string& name) {
  return ::link(path.c_str(), name.c_str()) == 0 ? absl::OkStatus() : FileError(errno, "link", path);
}

absl::Status PosixFileSystem::Unlink(const std::string& path) {
  return ::unlink(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus() : FileError(errno, "delete", path);
}

absl::Status PosixFileSystem::CreateDirectory(const std::string& path) {
  return ::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? absl::OkStatus() : FileError(errno, "create", path);
}

absl::Status PosixFileSystem::RemoveDirectory(const std::string& path) {
  return ::rmdir(path.c_str()) == 0 || errno == ENOENT ? absl::OkStatus() : FileError(errno, "delete", path);
}

absl::Status PosixFileSystem::SyncDirectory(const std::string& path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return FileError(errno, "open", path);
  int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error == 0) return absl::OkStatus();
  return absl::InternalError(fmt::format("cannot flush {}: {}", path, std::strerror(error)));
}

absl::StatusOr<std::vector<std::string>> PosixFileSystem::List(const std::string& path) {
  std::vector<std::string> names;
  DIR* directory = ::opendir(path.c_str());
  if (!directory) {
    if (errno == ENOENT) return names;
    return FileError(errno, "list", path);
  }
  while (dirent* entry = ::readdir(directory)) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<FileSystem::Stat> PosixFileSystem::GetStat(const std::string& path) {
  struct stat stat;
  if (::stat(path.c_str(), &stat) != 0) return FileError(errno, "look at", path);
  return Stat{.size_bytes = stat.st_size, .is_file = S_ISREG(stat.st_mode)};
}

}  // namespace sheaf
