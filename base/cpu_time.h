// ThreadCpuTime: how much of a processor this thread has had so far. On a machine that others use, too, it says what
// work costs where the clock says how long it waited.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace sheaf {

absl::Duration ThreadCpuTime();
// How long since some moment, whoever had the processor meanwhile. Asking takes some 20 ns, where ThreadCpuTime is a
// system call of some 300.
absl::Duration MonotonicTime();
// How many pages of memory this thread was the first to touch. On most machines that takes less than half a microsecond
// each, and on some virtual ones more than ten.
int64_t ThreadPageFaults();

}  // namespace sheaf
