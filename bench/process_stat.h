// What Linux says of a process: proc(5), /proc/PID/stat.
#pragma once

#include <sys/types.h>

#include "absl/time/time.h"

namespace sheaf::bench {

struct ProcessStat {
  pid_t parent = 0;
  // In user and kernel mode, of all its threads.
  absl::Duration cpu_time;
};
// Nothing of a process that is not there.
ProcessStat ReadProcessStat(pid_t pid);

// Of the processes that it has started and that are there now.
absl::Duration CpuTimeOfChildren(pid_t parent);

}  // namespace sheaf::bench
