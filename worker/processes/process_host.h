// ProcessHost: starts programs for a worker, and sees to it that none of them outlives it.
//
//   SystemClock clock;
//   ASSIGN_OR_RETURN(const std::unique_ptr<ProcessHost> host, ProcessHost::Start("/tmp", clock));
//   ASSIGN_OR_RETURN(const std::string directory, host->MakeDirectory());
//   ASSIGN_OR_RETURN(const std::unique_ptr<Process> process,
//                    host->Start({.arguments = {"/bin/true"}, .environment = {}, .directory = directory}));
//
// A process with threads had better not fork: between fork and exec nothing may be done that another thread could have
// been in the middle of. So Start forks once, before there are threads; what it forks has one thread for ever, and
// forks a keeper for each program (process_keeper.h):
//
//   worker --socket--> host --fork--> keeper --fork, exec--> program ----> what the program starts
//      \------------------socket-----/
//
// When the worker ends, however it ends, the kernel closes its sockets: keepers kill their programs, and the host
// deletes the scratch directory. What a keeper that was killed had kept is the host's to kill. Thread-safe.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "worker/processes/descriptor.h"
#include "worker/processes/process.h"
#include "worker/processes/process_spec.h"

namespace sheaf {

class ProcessHost {
 public:
  // Before this process starts its first thread. Makes a directory for all else in `parent`. FAILED_PRECONDITION,
  // naming the directory, if it cannot be made there. From then on this process ignores SIGPIPE.
  static absl::StatusOr<std::unique_ptr<ProcessHost>> Start(const std::string& parent, const Clock& clock);

  // Only this user can read it. Deleted when this ends.
  const std::string& scratch() const { return scratch_; }
  // Becomes readable when somebody has killed the host: nothing can be started any more, and nobody looks after
  // keepers. -1 if this kernel cannot tell.
  int ended_descriptor() const { return ended_.get(); }
  // A new one in it, for a process.
  absl::StatusOr<std::string> MakeDirectory();

  // Starts a program; that it cannot be started is its end. INVALID_ARGUMENT if arguments and environment together are
  // too large; INTERNAL if this machine has no descriptors left.
  absl::StatusOr<std::unique_ptr<Process>> Start(const ProcessSpec& spec) EXCLUDES(mutex_);

 private:
  ProcessHost(Descriptor socket, Descriptor ended, std::string scratch)
      : socket_(std::move(socket)), ended_(std::move(ended)), scratch_(std::move(scratch)) {}

  Mutex mutex_;
  Descriptor socket_ GUARDED_BY(mutex_);
  const Descriptor ended_;
  const std::string scratch_;
  std::atomic<int64_t> num_directories_ = 0;
};

}  // namespace sheaf
