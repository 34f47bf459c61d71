// Contributions that are uploaded, one after the other.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace sheaf::bench {

// 4 MiB of float32.
inline constexpr int64_t kUploadElements = 1 << 20;

// One worker, and a durable round of so many tasks, each of whose contributions has `num_elements` and is uploaded.
// INTERNAL if one is not accepted.
absl::Status HandIn(const std::string& address, std::string contribution, int64_t num_elements, int count);

}  // namespace sheaf::bench
