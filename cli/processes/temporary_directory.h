// TemporaryDirectory: a directory of our own, gone with this object unless kept.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sheaf {

class TemporaryDirectory {
 public:
  // Under `parent`, with a name that begins with `prefix`. Only we may enter it.
  static absl::StatusOr<TemporaryDirectory> Create(const std::string& parent, const std::string& prefix);

  TemporaryDirectory(TemporaryDirectory&& other) noexcept;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory();

  const std::string& path() const { return path_; }
  // Do not delete it.
  void Keep() { is_kept_ = true; }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
  bool is_kept_ = false;
};

}  // namespace sheaf
