#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "cli/processes/child_process.h"
#include "cli/processes/interrupt.h"
#include "cli/processes/temporary_directory.h"

namespace sheaf {
namespace {

class ShellChildren {
 public:
  absl::StatusOr<ChildProcess> Run(const std::string& script) {
    return ChildProcess::Start({.argv = {"/bin/sh", "-c", script}, .log_path = log()});
  }
  std::string log() const { return directory_->path() + "/log"; }

 private:
  absl::StatusOr<TemporaryDirectory> directory_ = TemporaryDirectory::Create("/tmp", "sheaf-child-");
};

TEST_CASE("A child's output is in its log, and its end is told in words") {
  ShellChildren shell;
  auto child = shell.Run("echo one; echo two >&2; exit 3");
  REQUIRE(child.ok());
  child->Stop(absl::Seconds(10));
  CHECK_FALSE(child->IsRunning());
  CHECK((child->EndText() == "exit code 3" || child->EndText() == "signal 15 (Terminated)"));
  if (child->EndText() == "exit code 3") CHECK(child->LogTail(1) == "two\n");
}

TEST_CASE("A child that ignores SIGTERM is killed after the grace") {
  ShellChildren shell;
  // The loop keeps the shell itself alive, so that nothing is left behind.
  auto child = shell.Run("trap '' TERM; echo ready; while :; do :; done");
  REQUIRE(child.ok());
  while (child->LogTail(1) != "ready\n") REQUIRE(child->IsRunning());
  CHECK(child->IsRunning());
  child->Stop(absl::Milliseconds(20));
  CHECK(child->EndText() == "signal 9 (Killed)");
}

TEST_CASE("A program that is not there is NOT_FOUND, and says which") {
  const auto child = ChildProcess::Start({.argv = {"/tmp/sheaf-no-such-program"}, .log_path = "/dev/null"});
  CHECK(child.status().code() == absl::StatusCode::kNotFound);
  CHECK(child.status().message() == "cannot start /tmp/sheaf-no-such-program: No such file or directory");
}

TEST_CASE("Ctrl-C ends the guarded children and leaves this process to clean up") {
  ShellChildren shell;
  auto child = shell.Run("while :; do :; done");
  REQUIRE(child.ok());
  {
    InterruptGuard guard;
    guard.Guard(child->pid());
    CHECK_FALSE(guard.interrupted());
    ::raise(SIGINT);
    CHECK(guard.interrupted());
  }
  while (child->IsRunning()) {
  }
  CHECK(child->EndText() == "signal 15 (Terminated)");
}

}  // namespace
}  // namespace sheaf
