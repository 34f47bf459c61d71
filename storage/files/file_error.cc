#include "storage/files/file_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "absl/time/time.h"
#include "base/retry_hint.h"

namespace sheaf {
namespace {

// Whoever has files open closes them when it is done.
constexpr absl::Duration kUntilFilesAreClosed = absl::Seconds(1);
// Somebody has to make some: until then an upload waits, and its task has not failed.
constexpr absl::Duration kUntilThereIsSpace = absl::Seconds(10);

}  // namespace

absl::Status FileError(int error, std::string_view what, const std::string& path) {
  std::string message = fmt::format("cannot {} {}: {}", what, path, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case ENOSPC:
    case EDQUOT:
      return WithRetryAfter(
          absl::ResourceExhaustedError(message + "; free some space or move the store to a larger disk"),
          kUntilThereIsSpace);
    case EFBIG:
      return absl::ResourceExhaustedError(message + "; move the store to a file system for larger files");
    case EMFILE:
    case ENFILE:
      return WithRetryAfter(absl::ResourceExhaustedError(message + "; raise the limit of open files (LimitNOFILE)"),
                            kUntilFilesAreClosed);
    case EOPNOTSUPP:
      return absl::UnimplementedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(message);
    default:
      return absl::InternalError(message);
  }
}

}  // namespace sheaf
