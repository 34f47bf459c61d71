// FileError: what a failed call on a file means for whoever asked for it.
//
//   if (::rename(from.c_str(), to.c_str()) != 0) return FileError(errno, "rename", from);
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// The status of `error` (an errno), met while doing `what` to `path`: one of FileSystem's codes.
absl::Status FileError(int error, std::string_view what, const std::string& path);

}  // namespace sheaf
