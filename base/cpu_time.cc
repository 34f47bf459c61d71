#include "base/cpu_time.h"

#include <ctime>

namespace sheaf {

absl::Duration ThreadCpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace sheaf
