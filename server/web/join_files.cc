#include "server/web/join_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include "base/checksum.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr std::string_view kModule = "computations.js";

absl::Status Unusable(const std::string& path, std::string_view why) {
  return absl::FailedPreconditionError(fmt::format("--join: {} {}", path, why));
}

bool IsPlainName(std::string_view name) {
  constexpr std::string_view kTaken = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return name.find_first_not_of(kTaken) == std::string_view::npos;
}

absl::StatusOr<JoinFiles::File> ReadOne(const std::filesystem::directory_entry& entry) {
  const std::string path = entry.path().string();
  JoinFiles::File file = {.name = entry.path().filename().string(), .bytes = {}, .digest = {}};
  std::error_code error;
  if (!entry.is_regular_file(error)) return Unusable(path, "is no file: tabs are given files only");
  if (!IsPlainName(file.name)) {
    return Unusable(path, "has a name that a URL would have to escape; use letters, digits, '.', '_' and '-'");
  }
  std::ifstream stream(path, std::ios::binary);
  file.bytes.assign(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  if (!stream) return Unusable(path, "cannot be read");
  file.digest = Sha256Hex(file.bytes);
  return file;
}

}  // namespace

absl::StatusOr<JoinFiles> JoinFiles::Read(const std::string& directory) {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  if (error) return Unusable(directory, fmt::format("cannot be read: {}", error.message()));
  std::vector<File> files;
  int64_t bytes = 0;
  for (const std::filesystem::directory_entry& entry : entries) {
    // Of a file that says so before it is read.
    const auto size = static_cast<int64_t>(entry.is_regular_file(error) ? entry.file_size(error) : 0);
    bytes += size;
    if (bytes > kBytesMax) {
      return Unusable(directory,
                      fmt::format("has more than {} MiB, which the server would keep in memory", kBytesMax >> 20));
    }
    ASSIGN_OR_RETURN(File file, ReadOne(entry));
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.name < b.name; });
  if (std::none_of(files.begin(), files.end(), [](const File& file) { return file.name == kModule; })) {
    return Unusable(directory, fmt::format("has no {}, the module that tabs run", kModule));
  }
  return JoinFiles(std::move(files));
}

}  // namespace sheaf
