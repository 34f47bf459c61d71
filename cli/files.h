// Files that commands read and write, with errors that name them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

// NOT_FOUND if there is none; PERMISSION_DENIED if it may not be read.
absl::StatusOr<std::string> ReadFile(const std::string& path);

bool FileExists(const std::string& path);

enum class Overwrite { kNo, kYes };

// All of it or nothing: readers never see a part. FAILED_PRECONDITION if the file is there and may not be replaced;
// RESOURCE_EXHAUSTED if the disk is full.
absl::Status WriteFile(const std::string& path, std::string_view bytes, Overwrite overwrite);

// As WriteFile with Overwrite::kNo, for the owner's eyes only.
absl::Status WriteSecretFile(const std::string& path, std::string_view bytes);

// What WriteFile says of a file that is there already.
absl::Status ExistsAlready(const std::string& path);

}  // namespace sheaf
