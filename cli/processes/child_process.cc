#include "cli/processes/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <utility>

namespace sheaf {
namespace {

// Runs in the child between fork and exec: only async-signal-safe calls. Returns errno of what failed.
int BecomeProgram(char* const* argv, char* const* environment, const char* log_path, pid_t parent) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return errno;
  // The parent may have died before the request reached the kernel.
  if (::getppid() != parent) return ESRCH;
  const int null = ::open("/dev/null", O_RDONLY);
  const int log = ::open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (null < 0 || log < 0) return errno;
  if (::dup2(null, 0) < 0 || ::dup2(log, 1) < 0 || ::dup2(log, 2) < 0) return errno;
  // Our own mask and handlers are none of the child's business.
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  ::execve(argv[0], argv, environment);
  return errno;
}

absl::Status StartError(int error, const std::string& program) {
  const std::string text = fmt::format("cannot start {}: {}", program, std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES) return absl::PermissionDeniedError(text);
  return absl::InternalError(text);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const ChildOptions& options) {
  std::vector<char*> argv;
  for (const std::string& argument : options.argv) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool is_hidden =
        !options.hidden_environment.empty() && std::string_view(*variable).starts_with(options.hidden_environment);
    if (!is_hidden) environment.push_back(*variable);
  }
  environment.push_back(nullptr);
  // Closed by a successful exec; carries errno otherwise.
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) return StartError(errno, options.argv[0]);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int error = BecomeProgram(argv.data(), environment.data(), options.log_path.c_str(), parent);
    if (::write(report[1], &error, sizeof error) < 0) ::_exit(126);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(report[1]);
  int error = 0;
  ssize_t got = 0;
  if (pid > 0) {
    do {
      got = ::read(report[0], &error, sizeof error);
    } while (got < 0 && errno == EINTR);
  }
  ::close(report[0]);
  if (pid < 0) return StartError(fork_error, options.argv[0]);
  if (got > 0) {
    ::waitpid(pid, nullptr, 0);
    return StartError(error, options.argv[0]);
  }
  return ChildProcess(pid, options.log_path);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, 0)),
      log_path_(std::move(other.log_path_)),
      ended_(std::exchange(other.ended_, true)),
      wait_status_(other.wait_status_) {}

ChildProcess::~ChildProcess() { Stop(absl::Seconds(5)); }

bool ChildProcess::IsRunning() { return !WaitForEnd(absl::ZeroDuration()); }

bool ChildProcess::WaitForEnd(absl::Duration timeout) {
  if (ended_) return true;
  if (timeout > absl::ZeroDuration()) {
    // Readable when the process has ended.
    const int handle = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    if (handle >= 0) {
      pollfd wait{.fd = handle, .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
      ::close(handle);
    }
  }
  ended_ = ::waitpid(pid_, &wait_status_, WNOHANG) == pid_;
  return ended_;
}

std::string ChildProcess::EndText() const {
  if (!ended_) return "still running";
  if (WIFEXITED(wait_status_)) return fmt::format("exit code {}", WEXITSTATUS(wait_status_));
  return fmt::format("signal {} ({})", WTERMSIG(wait_status_), ::strsignal(WTERMSIG(wait_status_)));
}

std::string ChildProcess::LogTail(int lines) const {
  std::ifstream log(log_path_);
  std::vector<std::string> all;
  for (std::string line; std::getline(log, line);) all.push_back(line);
  std::string tail;
  const size_t first = all.size() > static_cast<size_t>(lines) ? all.size() - static_cast<size_t>(lines) : 0;
  for (size_t i = first; i < all.size(); ++i) tail += all[i] + "\n";
  return tail;
}

void ChildProcess::Terminate() {
  if (IsRunning()) ::kill(pid_, SIGTERM);
}

void ChildProcess::Stop(absl::Duration grace) {
  Terminate();
  if (WaitForEnd(grace)) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, &wait_status_, 0) < 0 && errno == EINTR) {
  }
  ended_ = true;
}

}  // namespace sheaf
