// InterruptGuard: Ctrl-C while children work for us. While one lives, SIGINT, SIGTERM and SIGHUP do not end this
// process: they stop the guarded children, whose absence ends whatever we wait for, and we clean up on the way out.
//
//   InterruptGuard guard;
//   guard.Guard(server.pid());
//   const absl::Status status = Work();   // Its calls fail once the server is gone.
//   if (guard.interrupted()) return absl::CancelledError("interrupted");
//
// A second signal has its usual effect, and so has a reader of our output that goes away only afterwards. At most one
// guard at a time.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string_view>

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
  void (*previous_pipe_)(int) = nullptr;
};

// InterruptNote: what to say on stderr when Ctrl-C (or SIGTERM) ends us while it lives. It changes nothing of that end.
//
//   InterruptNote note("\nround r-7k2m9q4x goes on\n");
//
// At most 256 bytes. At most one at a time, and not within an InterruptGuard.
class InterruptNote {
 public:
  explicit InterruptNote(std::string_view text);
  ~InterruptNote();
  InterruptNote(const InterruptNote&) = delete;
  InterruptNote& operator=(const InterruptNote&) = delete;

 private:
  struct sigaction previous_[2];
};

}  // namespace sheaf
