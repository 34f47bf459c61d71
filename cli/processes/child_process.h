// ChildProcess: another program, run while this object lives.
//
//   ASSIGN_OR_RETURN(ChildProcess server, ChildProcess::Start({.argv = {"/usr/bin/sheafd", "--listen", "127.0.0.1:0"},
//                                                             .log_path = dir + "/sheafd.log"}));
//   if (!server.IsRunning()) return absl::AbortedError(server.EndText());
//   server.Stop(absl::Seconds(5));   // The destructor does it, too.
//
// The child is in a process group of its own (Ctrl-C reaches only us, who then stop it in order), reads
// nothing, writes to its log, and is told to stop by the kernel should we die. Not thread-safe; start children from
// a thread that lives as long as they shall.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf {

struct ChildOptions {
  // Path of the program, then its arguments.
  std::vector<std::string> argv;
  // Takes stdout and stderr; replaced if it is there.
  std::string log_path;
  // Variables of our environment that the child shall not see: those whose names begin so. Empty: it sees all.
  std::string hidden_environment;
};

class ChildProcess {
 public:
  // NOT_FOUND if there is no such program, PERMISSION_DENIED if it may not be run.
  static absl::StatusOr<ChildProcess> Start(const ChildOptions& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Stop with a grace of 5 s.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  const std::string& log_path() const { return log_path_; }

  bool IsRunning();
  // Left to itself: true if it ended, at once or within `timeout`.
  bool WaitForEnd(absl::Duration timeout);
  // How it ended: "exit code 1", "signal 9 (Killed)".
  std::string EndText() const;
  // The last lines of its log.
  std::string LogTail(int lines) const;

  // SIGTERM, without waiting.
  void Terminate();
  // SIGTERM; SIGKILL if it still runs after `grace`. Returns when it has ended.
  void Stop(absl::Duration grace);

 private:
  ChildProcess(pid_t pid, std::string log_path) : pid_(pid), log_path_(std::move(log_path)) {}

  pid_t pid_;
  std::string log_path_;
  bool ended_ = false;
  int wait_status_ = 0;
};

}  // namespace sheaf
