#include "sdk/cpp/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/certificates.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr size_t kTokenBytesMax = 1024;

bool IsTokenCharacter(char c) { return c > ' ' && c <= '~'; }

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

TokenFile::TokenFile(std::string path) : path_(std::move(path)) { Refused(); }

std::string TokenFile::header() const {
  MutexLock lock(mutex_);
  return header_;
}

void TokenFile::Refused() {
  if (path_.empty()) return;
  const absl::StatusOr<std::string> token = ReadTokenFile(path_);
  MutexLock lock(mutex_);
  header_ = token.ok() ? "Bearer " + *token : "";
}

}  // namespace sheaf
