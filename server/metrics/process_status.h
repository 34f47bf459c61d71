// ProcessStatus: what the operating system says of this process.
//
//   const ProcessStatus status = ReadProcessStatus();
//   status.resident_bytes;
//
// Reads /proc; what cannot be read is 0. Thread-safe.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sheaf {

struct ProcessStatus {
  absl::Duration cpu;
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t num_threads = 0;
  int64_t num_open_files = 0;
  int64_t open_files_max = 0;
};
ProcessStatus ReadProcessStatus();

}  // namespace sheaf
