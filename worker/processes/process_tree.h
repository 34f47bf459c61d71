// ProcessTree: a process and all that descend from it, as /proc shows them.
//
//   for (pid_t pid : DescendantsOf(getpid())) kill(pid, SIGKILL);
//   const ProcessUsage usage = UsageOf(DescendantsOf(getpid()));
//
// A snapshot: processes come and go while it is taken. It costs O(processes of the tree).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace sheaf {

struct ProcessUsage {
  // Of those that live, and of their children that they waited for.
  absl::Duration cpu;
  // Resident and of no file, all together.
  int64_t memory_bytes = 0;
};

// Those that it started or took over, and not theirs.
std::vector<pid_t> ChildrenOf(pid_t parent);
// Children before their own children; without `root`.
std::vector<pid_t> DescendantsOf(pid_t root);
ProcessUsage UsageOf(const std::vector<pid_t>& processes);

}  // namespace sheaf
