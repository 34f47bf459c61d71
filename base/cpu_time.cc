#include "base/cpu_time.h"

#include <sys/resource.h>

#include <ctime>

namespace sheaf {

namespace {

absl::Duration Read(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

absl::Duration ThreadCpuTime() { return Read(CLOCK_THREAD_CPUTIME_ID); }

absl::Duration MonotonicTime() { return Read(CLOCK_MONOTONIC); }

int64_t ThreadPageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

}  // namespace sheaf
