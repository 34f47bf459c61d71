// JoinFiles: what the server's owner gives to tabs: the files of a directory, read once, when the server starts.
//
//   ASSIGN_OR_RETURN(const JoinFiles files, JoinFiles::Read("/srv/sheaf/join"));
//   for (const JoinFiles::File& file : files.all()) LogInfo("{}: {} bytes", file.name, file.bytes.size());
//
// One of them is computations.js, the module that tabs run (docs/guides/run-in-a-browser.md). Nothing changes it, so
// that it is thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

class JoinFiles {
 public:
  struct File {
    // "computations.js"
    std::string name;
    std::string bytes;
    // SHA-256, lower-case hex.
    std::string digest;
  };

  // Of all files: what a server keeps in memory for tabs.
  static constexpr int64_t kBytesMax = 256 << 20;

  // FAILED_PRECONDITION, naming it, if the directory cannot be read, has no computations.js, has something that is no
  // file or whose name has other characters than A to Z, a to z, 0 to 9, ".", "_" and "-", or is too large.
  static absl::StatusOr<JoinFiles> Read(const std::string& directory);

  // By name.
  const std::vector<File>& all() const { return files_; }

 private:
  explicit JoinFiles(std::vector<File> files) : files_(std::move(files)) {}

  std::vector<File> files_;
};

}  // namespace sheaf
