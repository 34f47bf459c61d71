#include "cli/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/status_macros.h"
#include "cli/terminal/errors.h"

namespace sheaf {
namespace {

absl::Status ErrnoStatus(int error, std::string_view doing, const std::string& path) {
  const std::string text = fmt::format("cannot {} {}: {}", doing, path, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status WriteAll(int file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write", path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) return WithHint(ErrnoStatus(errno, "read", path), "check the path");
  if (std::filesystem::is_directory(path)) return absl::InvalidArgumentError(fmt::format("{} is a directory", path));
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file.bad()) return ErrnoStatus(errno, "read", path);
  return bytes;
}

bool FileExists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

absl::Status ExistsAlready(const std::string& path) {
  return WithHint(absl::FailedPreconditionError(fmt::format("{} exists already", path)),
                  "add --force to replace it, or choose another name");
}

namespace {

absl::Status WriteWithMode(const std::string& path, std::string_view bytes, Overwrite overwrite, mode_t mode) {
  const std::string part = fmt::format("{}.{}.part", path, ::getpid());
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
  if (file < 0) return WithHint(ErrnoStatus(errno, "write", path), "check that its directory exists and is yours");
  absl::Status status = WriteAll(file, bytes, path);
  if (::close(file) != 0 && status.ok()) status = ErrnoStatus(errno, "write", path);
  const unsigned flags = overwrite == Overwrite::kYes ? 0 : RENAME_NOREPLACE;
  if (status.ok() && ::renameat2(AT_FDCWD, part.c_str(), AT_FDCWD, path.c_str(), flags) != 0) {
    status = errno == EEXIST ? ExistsAlready(path) : ErrnoStatus(errno, "write", path);
  }
  if (!status.ok()) ::unlink(part.c_str());
  return status;
}

}  // namespace

absl::Status WriteFile(const std::string& path, std::string_view bytes, Overwrite overwrite) {
  return WriteWithMode(path, bytes, overwrite, 0666);
}

absl::Status WriteSecretFile(const std::string& path, std::string_view bytes) {
  return WriteWithMode(path, bytes, Overwrite::kNo, 0600);
}

}  // namespace sheaf
