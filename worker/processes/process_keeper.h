// KeepProcess: the life of a process whose only work is to start a program, to watch what it uses, and to end it with
// everything that it started.
//
//   if (fork() == 0) KeepProcess(spec, descriptors, clock);
//
// It is the subreaper of what it started (prctl(2)): a process that leaves its group or its session, or whose parent
// ends, becomes its child, and is found. It kills them all when the program ends, when a limit is exceeded, and when
// the other end of `control` is closed, which the kernel does if the worker dies. Then it deletes the program's
// directory. See process_report.h for what is said on `control`.
#pragma once

#include "base/clock.h"
#include "worker/processes/process_spec.h"

namespace sheaf {

struct KeeperDescriptors {
  // A socket of packets.
  int control = -1;
  // The program's descriptors 3 and 4, and 1 and 2.
  int lines_in = -1;
  int lines_out = -1;
  int printed = -1;
};

// Takes over this process, which has one thread and no other descriptors that matter.
[[noreturn]] void KeepProcess(const ProcessSpec& spec, const KeeperDescriptors& descriptors, const Clock& clock);

}  // namespace sheaf
