#include "cli/processes/temporary_directory.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace sheaf {

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create(const std::string& parent, const std::string& prefix) {
  std::string path = fmt::format("{}/{}XXXXXX", parent, prefix);
  if (::mkdtemp(path.data()) == nullptr) {
    return absl::InternalError(fmt::format("cannot make a directory in {}: {}; set TMPDIR to one you may write", parent,
                                           std::strerror(errno)));
  }
  return TemporaryDirectory(std::move(path));
}

TemporaryDirectory::TemporaryDirectory(TemporaryDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")), is_kept_(other.is_kept_) {}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty() && !is_kept_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace sheaf
