#include "sdk/cpp/client/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"
#include "tls/certificates.h"

namespace sheaf {
namespace {

constexpr size_t kTokenBytesMax = 1024;

bool IsTokenCharacter(char c) { return c > ' ' && c <= '~'; }

// The change time moves with every write and every change of mode; a file renamed over it has another inode.
bool IsSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

}  // namespace

absl::StatusOr<std::string> ReadTokenFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  std::string token;
  if (!file.is_open()) {
    const std::string message = fmt::format("cannot read the token file {}: {}; check the path and its permissions",
                                            path, std::strerror(errno));
    return errno == EACCES ? absl::PermissionDeniedError(message) : absl::NotFoundError(message);
  }
  std::string more;
  file >> token >> more;
  if (token.empty() || !more.empty() || token.size() > kTokenBytesMax ||
      !std::all_of(token.begin(), token.end(), IsTokenCharacter)) {
    return absl::InvalidArgumentError(
        fmt::format("the token file {} does not hold one token and nothing else; write into it what `sheaf token "
                    "create` printed",
                    path));
  }
  RETURN_IF_ERROR(CheckSecretFile(path));
  return token;
}

TokenFile::TokenFile(std::string path) : path_(std::move(path)) {
  MutexLock lock(mutex_);
  Look();
}

std::string TokenFile::header() {
  MutexLock lock(mutex_);
  Look();
  return header_;
}

bool TokenFile::Refused(const std::string& shown) {
  MutexLock lock(mutex_);
  // Not Look(): a file system may keep times too coarse to tell two writes apart.
  if (!path_.empty()) Read();
  return !header_.empty() && header_ != shown;
}

int64_t TokenFile::version() {
  MutexLock lock(mutex_);
  Look();
  return version_;
}

void TokenFile::Look() {
  if (path_.empty()) return;
  struct stat now = {};
  if (::stat(path_.c_str(), &now) != 0) now = {};
  if (IsSameFile(now, seen_)) return;
  // Taken before the file is read: what is written meanwhile is seen by the next look.
  seen_ = now;
  Read();
}

void TokenFile::Read() {
  const absl::StatusOr<std::string> token = ReadTokenFile(path_);
  if (!token.ok()) {
    // At the start CheckChannelSecurity says it, and better.
    if (!header_.empty()) {
      LogWarning("still showing the token that was in {} before: {}", path_, std::string(token.status().message()));
    }
    return;
  }
  std::string header = "Bearer " + *token;
  if (header == header_) return;
  if (!header_.empty()) LogInfo("{} has another token: it is shown from now on", path_);
  header_ = std::move(header);
  ++version_;
}

}  // namespace sheaf
