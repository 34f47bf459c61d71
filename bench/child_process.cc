#include "bench/child_process.h"

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bench/process_stat.h"

namespace sheaf::bench {
namespace {

constexpr std::string_view kListening = "listening on ";

[[noreturn]] void RunChild(const ChildProcess::Options& options, int output) {
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  PinTo(options.cpu);
  for (const auto& [name, value] : options.variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& word : options.words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

// The host and port behind "listening on", once the line is complete.
std::optional<std::string> FindAddress(const std::string& output) {
  const size_t found = output.find(kListening);
  if (found == std::string::npos) return std::nullopt;
  const size_t start = found + kListening.size();
  const size_t end = output.find_first_of(", \n", start);
  if (end == std::string::npos) return std::nullopt;
  return output.substr(start, end - start);
}

}  // namespace

void PinTo(std::optional<int> cpu) {
  if (!cpu) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(*cpu, &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
}

void Unpin() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &cpus);
  sched_setaffinity(0, sizeof cpus, &cpus);
}

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const Options& options) {
  int ends[2];
  if (pipe(ends) != 0) return absl::InternalError("no pipe");
  const pid_t pid = fork();
  if (pid < 0) return absl::InternalError("no process");
  if (pid == 0) RunChild(options, ends[1]);
  close(ends[1]);
  std::unique_ptr<ChildProcess> child(new ChildProcess(pid, ends[0]));
  if (!options.listens) {
    child->ReadOn();
    return child;
  }
  std::string printed;
  char buffer[4096];
  for (ssize_t n = read(ends[0], buffer, sizeof buffer); n > 0; n = read(ends[0], buffer, sizeof buffer)) {
    printed.append(buffer, static_cast<size_t>(n));
    if (const auto address = FindAddress(printed)) {
      child->address_ = *address;
      child->ReadOn();
      return child;
    }
  }
  return absl::UnavailableError(fmt::format("{} did not start: {}", options.words.front(), printed));
}

// What it logs is of no interest any more. Unread, it would fill the pipe after some ten thousand rounds, and the next
// line would hold up the server for ever.
void ChildProcess::ReadOn() {
  log_ = std::thread([output = output_] {
    char line[4096];
    while (read(output, line, sizeof line) > 0) continue;
  });
}

void ChildProcess::Stop() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  is_stopped_ = true;
}

ChildProcess::~ChildProcess() {
  if (!is_stopped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (log_.joinable()) log_.join();
  close(output_);
}

absl::Duration ChildProcess::cpu_time() const { return ReadProcessStat(pid_).cpu_time; }

int64_t ChildProcess::rss_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/statm", pid_));
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t ChildProcess::peak_rss_bytes() const {
  std::ifstream file(fmt::format("/proc/{}/status", pid_));
  std::string word;
  while (file >> word && word != "VmHWM:") {
  }
  int64_t kibibytes = 0;
  file >> kibibytes;
  return kibibytes * 1024;
}

}  // namespace sheaf::bench
