#include "worker/processes/process_keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "worker/processes/process_report.h"
#include "worker/processes/process_tree.h"

namespace sheaf {
namespace {

// How often it looks at what a program uses.
constexpr absl::Duration kLookEvery = absl::Milliseconds(100);
// Entries of the program's directory that it looks at; a program with more is over its limit.
constexpr int64_t kEntriesMax = 10'000;
// Between two turns of killing, if somebody is slow to die.
constexpr int kKillPauseMilliseconds = 1;
// A file that grows so far beyond the limit of output grows no further: its program is over the limit for whoever
// looks, whatever it makes of the error.
constexpr int64_t kFileMargin = 64 << 10;

// Bytes on disk of all that is in `directory`; more than any limit if there are too many entries. Links are not
// followed.
int64_t BytesIn(const std::string& directory) {
  int64_t bytes = 0;
  int64_t entries = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(
           directory, std::filesystem::directory_options::skip_permission_denied, error);
       !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    if (++entries > kEntriesMax) return std::numeric_limits<int64_t>::max();
    struct stat status = {};
    if (lstat(at->path().c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
      bytes += std::max<int64_t>(status.st_size, int64_t{status.st_blocks} * 512);
    }
  }
  return bytes;
}

// Does not return. What went wrong goes into `error_pipe`.
[[noreturn]] void Execute(const ProcessSpec& spec, const KeeperDescriptors& descriptors, int error_pipe) {
  // All but this are the program's to set.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGPIPE, SIGHUP}) ::signal(signal, SIG_DFL);
  setsid();

  const auto limit = [](auto resource, rlim_t value) {
    const rlimit both = {value, value};
    setrlimit(resource, &both);
  };
  limit(RLIMIT_CORE, 0);
  if (spec.limits.output_bytes < std::numeric_limits<int64_t>::max() - kFileMargin) {
    limit(RLIMIT_FSIZE, static_cast<rlim_t>(spec.limits.output_bytes + kFileMargin));
  }

  std::vector<char*> arguments;
  for (const std::string& argument : spec.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (const std::string& variable : spec.environment) environment.push_back(const_cast<char*>(variable.c_str()));
  environment.push_back(nullptr);

  // Out of the way of those that are about to be replaced.
  const int lines_in = fcntl(descriptors.lines_in, F_DUPFD_CLOEXEC, 10);
  const int lines_out = fcntl(descriptors.lines_out, F_DUPFD_CLOEXEC, 10);
  const int printed = fcntl(descriptors.printed, F_DUPFD_CLOEXEC, 10);
  const int errors = fcntl(error_pipe, F_DUPFD_CLOEXEC, 10);
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool is_ready = dup2(nothing, STDIN_FILENO) >= 0 && dup2(printed, STDOUT_FILENO) >= 0 &&
                        dup2(printed, STDERR_FILENO) >= 0 && dup2(lines_in, kLinesToProgram) >= 0 &&
                        dup2(lines_out, kLinesFromProgram) >= 0;
  if (is_ready) {
    // If memory runs out, the kernel had better take this.
    if (const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC); file >= 0) {
      [[maybe_unused]] const ssize_t written = write(file, "1000", 4);
      close(file);
    }
    // Ours are CLOEXEC. Those that somebody gave the worker when it started are not.
    close_range(kLinesFromProgram + 1, std::numeric_limits<unsigned>::max(), CLOSE_RANGE_CLOEXEC);
    execve(arguments[0], arguments.data(), environment.data());
  }
  const int32_t error = errno;
  [[maybe_unused]] const ssize_t written = write(errors, &error, sizeof(error));
  _exit(127);
}

class Keeper {
 public:
  Keeper(const ProcessSpec& spec, const KeeperDescriptors& descriptors, const Clock& clock)
      : spec_(spec), descriptors_(descriptors), clock_(clock) {}

  void Run() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &children, nullptr);
    ended_ = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);

    if (const int error = Start(); error != 0) {
      Report({.kind = ProcessReport::Kind::kNotStarted, .error = error});
    } else {
      if (spec_.is_watched_at_once) Watch(spec_.directory);
      while (is_running_ && is_wanted_) Step();
      KillAll();
      // It may have ended between two looks.
      if (watched_.has_value() && exceeded_ == ProcessLimit::kNone && IsOverOutput()) exceeded_ = ProcessLimit::kOutput;
      Report({.kind = ProcessReport::Kind::kEnded,
              .wait_status = wait_status_,
              .exceeded = exceeded_,
              .cpu_nanoseconds = absl::ToInt64Nanoseconds(cpu_)});
    }
    // Whoever asked for it may want to read what it left.
    char ignored = 0;
    while (is_wanted_ && recv(descriptors_.control, &ignored, 1, 0) > 0) {
    }
    std::error_code error;
    std::filesystem::remove_all(spec_.directory, error);
  }

 private:
  // An errno, or 0.
  int Start() {
    int errors[2];
    if (pipe2(errors, O_CLOEXEC) != 0) return errno;
    program_ = fork();
    if (program_ < 0) return errno;
    if (program_ == 0) Execute(spec_, descriptors_, errors[1]);
    close(errors[1]);
    // That the program ended can be seen only if nobody else has its ends.
    for (const int theirs : {descriptors_.lines_in, descriptors_.lines_out, descriptors_.printed}) close(theirs);
    int32_t error = 0;
    const bool failed = read(errors[0], &error, sizeof(error)) == sizeof(error);
    close(errors[0]);
    if (failed) waitpid(program_, nullptr, 0);
    return failed ? error : 0;
  }

  void Step() {
    pollfd events[] = {{.fd = descriptors_.control, .events = POLLIN, .revents = 0},
                       {.fd = ended_, .events = POLLIN, .revents = 0}};
    const int changed = poll(events, 2, watched_.has_value() ? MillisecondsUntil(next_look_) : -1);
    if (events[1].revents != 0) Reap();
    if (events[0].revents != 0) Listen();
    // In time also where something happens all the time, and where the clock was turned back.
    if (watched_.has_value() && (changed == 0 || clock_.Now() >= next_look_)) Look();
  }

  int MillisecondsUntil(absl::Time time) const {
    const absl::Duration left = std::clamp(time - clock_.Now(), absl::ZeroDuration(), kLookEvery);
    return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))));
  }

  // Waits for those that ended, the program or others that became ours.
  void Reap() {
    DrainEnded();
    int status = 0;
    rusage usage = {};
    for (pid_t pid = 0; (pid = wait4(-1, &status, WNOHANG, &usage)) > 0;) {
      gone_cpu_ += absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
      if (pid != program_) continue;
      is_running_ = false;
      wait_status_ = status;
    }
  }

  void DrainEnded() {
    signalfd_siginfo ignored;
    while (read(ended_, &ignored, sizeof(ignored)) > 0) {
    }
  }

  void Listen() {
    std::string message(8 << 10, '\0');
    const ssize_t size = recv(descriptors_.control, message.data(), message.size(), 0);
    if (size <= 0) {
      is_wanted_ = size < 0 && errno == EINTR;
    } else if (message[0] == kWatch) {
      Watch(message.substr(1, static_cast<size_t>(size) - 1));
    } else if (message[0] == kRest) {
      watched_.reset();
    }
  }

  void Watch(std::string directory) {
    watched_ = {.directory = std::move(directory), .begin = clock_.Now(), .cpu_before = CpuSoFar()};
    cpu_ = absl::ZeroDuration();
    next_look_ = watched_->begin + kLookEvery;
  }

  bool IsOverOutput() const { return BytesIn(watched_->directory) > spec_.limits.output_bytes; }

  absl::Duration CpuSoFar() const { return gone_cpu_ + UsageOf(DescendantsOf(getpid())).cpu; }

  void Look() {
    const ProcessUsage usage = UsageOf(DescendantsOf(getpid()));
    cpu_ = gone_cpu_ + usage.cpu - watched_->cpu_before;
    const ProcessLimits& limits = spec_.limits;
    exceeded_ = cpu_ > limits.cpu                              ? ProcessLimit::kCpu
                : clock_.Now() - watched_->begin > limits.time ? ProcessLimit::kTime
                : usage.memory_bytes > limits.memory_bytes     ? ProcessLimit::kMemory
                : IsOverOutput()                               ? ProcessLimit::kOutput
                                                               : ProcessLimit::kNone;
    if (exceeded_ != ProcessLimit::kNone) is_running_ = false;
    next_look_ = clock_.Now() + kLookEvery;
    Report({.kind = ProcessReport::Kind::kUsage, .cpu_nanoseconds = absl::ToInt64Nanoseconds(cpu_)});
  }

  // Until nobody is left. Whoever starts others while it is killed is outrun: nobody is started any more by those that
  // stand still.
  void KillAll() {
    for (const int signal : {SIGSTOP, SIGKILL}) {
      for (const pid_t pid : DescendantsOf(getpid())) kill(pid, signal);
    }
    for (;;) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, WNOHANG);
      if (pid < 0 && errno == ECHILD) return;
      if (pid == program_) wait_status_ = status;
      if (pid > 0) continue;
      for (const pid_t descendant : DescendantsOf(getpid())) kill(descendant, SIGKILL);
      pollfd ended = {.fd = ended_, .events = POLLIN, .revents = 0};
      poll(&ended, 1, kKillPauseMilliseconds);
      DrainEnded();
    }
  }

  void Report(const ProcessReport& report) {
    const bool may_wait = report.kind != ProcessReport::Kind::kUsage;
    send(descriptors_.control, &report, sizeof(report), MSG_NOSIGNAL | (may_wait ? 0 : MSG_DONTWAIT));
  }

  struct Watched {
    std::string directory;
    absl::Time begin;
    absl::Duration cpu_before;
  };

  const ProcessSpec& spec_;
  const KeeperDescriptors& descriptors_;
  const Clock& clock_;
  int ended_ = -1;
  pid_t program_ = -1;
  bool is_running_ = true;
  // Nobody has closed the other end.
  bool is_wanted_ = true;
  int wait_status_ = 0;
  ProcessLimit exceeded_ = ProcessLimit::kNone;
  std::optional<Watched> watched_;
  absl::Time next_look_;
  // Of the piece of work that is watched.
  absl::Duration cpu_;
  // Of processes that were waited for here.
  absl::Duration gone_cpu_;
};

}  // namespace

void KeepProcess(const ProcessSpec& spec, const KeeperDescriptors& descriptors, const Clock& clock) {
  Keeper(spec, descriptors, clock).Run();
  _exit(0);
}

}  // namespace sheaf
