#include "worker/processes/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "worker/processes/descriptor.h"

namespace sheaf {
namespace {

// "" if the process ended, before the file was opened or since: then read(2) fails, and a stream would throw.
std::string ReadAll(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char buffer[4096];
  for (ssize_t size = 0; file && (size = read(file.get(), buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(size));
  }
  return text;
}

// Those of each of its threads: a child is its thread's.
void AppendChildren(pid_t parent, std::vector<pid_t>& children) {
  const std::string threads = fmt::format("/proc/{}/task", parent);
  DIR* const directory = opendir(threads.c_str());
  if (directory == nullptr) return;  // It ended.
  while (const dirent* thread = readdir(directory)) {
    if (thread->d_name[0] == '.') continue;
    std::istringstream text(ReadAll(fmt::format("{}/{}/children", threads, thread->d_name)));
    for (pid_t child = 0; text >> child;) children.push_back(child);
  }
  closedir(directory);
}

// Times in /proc/PID/stat are the 14th to 17th field; the second, a name in parentheses, may hold anything.
absl::Duration CpuOf(pid_t process) {
  const std::string stat = ReadAll(fmt::format("/proc/{}/stat", process));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return absl::ZeroDuration();
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  int64_t ticks = 0;
  for (int field = 14; field <= 17; ++field) {
    int64_t value = 0;
    fields >> value;
    ticks += value;
  }
  static const int64_t ticks_per_second = sysconf(_SC_CLK_TCK);
  return absl::Seconds(1) * ticks / ticks_per_second;
}

int64_t MemoryOf(pid_t process) {
  std::istringstream status(ReadAll(fmt::format("/proc/{}/status", process)));
  int64_t kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    for (const std::string_view key : {"RssAnon:", "RssShmem:"}) {
      if (line.starts_with(key)) kilobytes += std::atoll(line.c_str() + key.size());
    }
  }
  return kilobytes << 10;
}

}  // namespace

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> found;
  AppendChildren(parent, found);
  return found;
}

std::vector<pid_t> DescendantsOf(pid_t root) {
  std::vector<pid_t> found = ChildrenOf(root);
  for (size_t i = 0; i < found.size(); ++i) {
    const pid_t parent = found[i];
    AppendChildren(parent, found);
  }
  return found;
}

ProcessUsage UsageOf(const std::vector<pid_t>& processes) {
  ProcessUsage usage;
  for (const pid_t process : processes) {
    usage.cpu += CpuOf(process);
    usage.memory_bytes += MemoryOf(process);
  }
  return usage;
}

}  // namespace sheaf
