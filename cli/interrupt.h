// InterruptGuard: Ctrl-C while children work for us. While one lives, SIGINT, SIGTERM and SIGHUP do not end this
// process: they stop the guarded children, whose absence ends whatever we wait for, and we clean up on the way out.
//
//   InterruptGuard guard;
//   guard.Guard(server.pid());
//   ... // Calls fail once the server is gone.
//   if (guard.interrupted()) return absl::CancelledError("interrupted");
//
// A second signal has its usual effect. At most one guard at a time.
#pragma once

#include <sys/types.h>

#include <csignal>

namespace sheaf {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // At most 64 children; further ones are not told.
  void Guard(pid_t child);
  bool interrupted() const;

 private:
  struct sigaction previous_[3];
};

}  // namespace sheaf
