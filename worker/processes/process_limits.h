// ProcessLimits: what one piece of work may cost that a process does for us, with all processes that it started.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/time/time.h"

namespace sheaf {

enum class ProcessLimit { kNone, kCpu, kTime, kMemory, kOutput };
// "cpu", "time", "memory", "output": as in the settings.
std::string_view ProcessLimitName(ProcessLimit limit);

struct ProcessLimits {
  // On a CPU, all processes together.
  absl::Duration cpu = absl::InfiniteDuration();
  absl::Duration time = absl::InfiniteDuration();
  // Resident, and no file's: what is mapped from files is not counted.
  int64_t memory_bytes = std::numeric_limits<int64_t>::max();
  // In the directory that it writes to, and in one file.
  int64_t output_bytes = std::numeric_limits<int64_t>::max();
};

}  // namespace sheaf
