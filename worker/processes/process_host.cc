#include "worker/processes/process_host.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/status_macros.h"
#include "worker/processes/process_keeper.h"
#include "worker/processes/process_report.h"
#include "worker/processes/process_tree.h"

namespace sheaf {
namespace {

// Of a message to the host: arguments and environment. Sockets take this much by default.
constexpr size_t kSpecBytesMax = 128 << 10;
constexpr size_t kNumDescriptors = 4;

absl::Status Errno(std::string_view what) { return absl::InternalError(fmt::format("{}: {}", what, strerror(errno))); }

// A message with the ends that are the program's and its keeper's.
absl::Status Send(int socket, std::string bytes, const std::array<int, kNumDescriptors>& descriptors) {
  iovec piece = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(descriptors));
  memcpy(CMSG_DATA(header), descriptors.data(), sizeof(descriptors));
  while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return Errno("cannot ask for a process");
  }
  return absl::OkStatus();
}

// False when the worker is gone.
bool Receive(int socket, std::string& bytes, std::array<int, kNumDescriptors>& descriptors) {
  bytes.resize(kSpecBytesMax);
  iovec piece = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptors))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size = 0;
  while ((size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR) {
  }
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (size <= 0 || header == nullptr || header->cmsg_len != CMSG_LEN(sizeof(descriptors))) return false;
  memcpy(descriptors.data(), CMSG_DATA(header), sizeof(descriptors));
  bytes.resize(static_cast<size_t>(size));
  return true;
}

// The life of the host.
class Server {
 public:
  Server(int socket, const std::string& scratch, const Clock& clock)
      : socket_(socket), scratch_(scratch), clock_(clock) {}

  [[noreturn]] void Run() {
    // Not in the terminal's group of processes: Ctrl-C is the worker's to hear. It ends when the worker does.
    setsid();
    for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(ignored, SIG_IGN);
    prctl(PR_SET_NAME, "sheaf-processes");
    // What a keeper kept becomes ours if somebody kills the keeper.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    sigprocmask(SIG_BLOCK, &children, nullptr);
    ended_ = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);

    for (bool is_wanted = true; is_wanted || !keepers_.empty();) {
      pollfd events[] = {{.fd = is_wanted ? socket_ : -1, .events = POLLIN, .revents = 0},
                         {.fd = ended_, .events = POLLIN, .revents = 0}};
      poll(events, 2, -1);
      if (events[1].revents != 0) Reap();
      if (events[0].revents != 0) is_wanted = StartKeeper();
    }
    std::error_code error;
    std::filesystem::remove_all(scratch_, error);
    _exit(0);
  }

 private:
  // False when the worker is gone.
  bool StartKeeper() {
    std::string bytes;
    std::array<int, kNumDescriptors> ends = {};
    if (!Receive(socket_, bytes, ends)) return false;
    const pid_t keeper = fork();
    if (keeper == 0) {
      close(socket_);
      close(ended_);
      prctl(PR_SET_NAME, "sheaf-keeper");
      const auto [control, lines_in, lines_out, printed] = ends;
      KeepProcess(ReadProcessSpec(bytes),
                  {.control = control, .lines_in = lines_in, .lines_out = lines_out, .printed = printed}, clock_);
    }
    if (keeper > 0) keepers_.insert(keeper);
    if (keeper < 0) {
      const ProcessReport report = {.kind = ProcessReport::Kind::kNotStarted, .error = errno};
      send(ends[0], &report, sizeof(report), MSG_NOSIGNAL);
    }
    for (const int end : ends) close(end);
    return true;
  }

  // Forgets keepers that ended, and kills what was left to us. Whoever is killed here is waited for here, and leaves us
  // those that it had started: until nobody but keepers is left.
  void Reap() {
    signalfd_siginfo ignored;
    while (read(ended_, &ignored, sizeof(ignored)) > 0) {
    }
    for (bool has_strays = true; has_strays;) {
      for (pid_t pid = 0; (pid = waitpid(-1, nullptr, WNOHANG)) > 0;) keepers_.erase(pid);
      has_strays = false;
      for (const pid_t child : ChildrenOf(getpid())) {
        // One that took other rights is not ours to kill.
        if (keepers_.contains(child) || kill(child, SIGKILL) != 0) continue;
        has_strays = true;
        waitpid(child, nullptr, 0);
      }
    }
  }

  const int socket_;
  const std::string& scratch_;
  const Clock& clock_;
  int ended_ = -1;
  std::set<pid_t> keepers_;
};

// A pipe whose `ours` end does not block.
absl::Status MakePipe(Descriptor& read_end, Descriptor& write_end, const Descriptor& ours) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Errno("cannot make a pipe");
  read_end = Descriptor(ends[0]);
  write_end = Descriptor(ends[1]);
  if (fcntl(ours.get(), F_SETFL, O_NONBLOCK) != 0) return Errno("cannot make a pipe");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessHost>> ProcessHost::Start(const std::string& parent, const Clock& clock) {
  std::string scratch = std::filesystem::absolute(parent) / "sheaf-worker.XXXXXX";
  if (mkdtemp(scratch.data()) == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("cannot make a directory in {}: {}; name another with --scratch", parent, strerror(errno)));
  }
  // A program that does not read any more is an error of write(2), and no end of ours.
  signal(SIGPIPE, SIG_IGN);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return Errno("cannot make a socket");
  const pid_t host = fork();
  if (host < 0) return Errno("cannot start a process");
  if (host == 0) {
    close(ends[0]);
    Server(ends[1], scratch, clock).Run();
  }
  close(ends[1]);
  return std::unique_ptr<ProcessHost>(new ProcessHost(
      Descriptor(ends[0]), Descriptor(static_cast<int>(syscall(SYS_pidfd_open, host, 0))), std::move(scratch)));
}

absl::StatusOr<std::string> ProcessHost::MakeDirectory() {
  std::string path = fmt::format("{}/p{}", scratch_, ++num_directories_);
  if (mkdir(path.c_str(), 0700) != 0) return Errno(path);
  return path;
}

absl::StatusOr<std::unique_ptr<Process>> ProcessHost::Start(const ProcessSpec& spec) {
  std::string bytes = WriteProcessSpec(spec);
  if (bytes.size() > kSpecBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("arguments and environment take {} bytes, and at most {} are taken", bytes.size(), kSpecBytesMax));
  }
  Process::Descriptors ours;
  Descriptor lines_in;
  Descriptor lines_out;
  Descriptor printed;
  RETURN_IF_ERROR(MakePipe(lines_in, ours.lines_to_program, ours.lines_to_program));
  RETURN_IF_ERROR(MakePipe(ours.lines_from_program, lines_out, ours.lines_from_program));
  RETURN_IF_ERROR(MakePipe(ours.printed, printed, ours.printed));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return Errno("cannot make a socket");
  ours.control = Descriptor(ends[0]);
  const Descriptor control(ends[1]);
  MutexLock lock(mutex_);
  RETURN_IF_ERROR(
      Send(socket_.get(), std::move(bytes), {control.get(), lines_in.get(), lines_out.get(), printed.get()}));
  return std::make_unique<Process>(std::move(ours), spec.directory);
}

}  // namespace sheaf
