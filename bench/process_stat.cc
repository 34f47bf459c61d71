#include "bench/process_stat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace sheaf::bench {

ProcessStat ReadProcessStat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Behind the name, which may hold anything, in parentheses: state is field 3, ppid 4, utime 14, stime 15.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 2));
  std::string skipped;
  ProcessStat stat;
  fields >> skipped >> stat.parent;
  for (int field = 5; field < 14; ++field) fields >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  fields >> user >> system;
  stat.cpu_time = absl::Seconds(1) * (user + system) / sysconf(_SC_CLK_TCK);
  return stat;
}

absl::Duration CpuTimeOfChildren(pid_t parent) {
  absl::Duration sum;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid == 0) continue;
    const ProcessStat stat = ReadProcessStat(pid);
    if (stat.parent == parent) sum += stat.cpu_time;
  }
  return sum;
}

}  // namespace sheaf::bench
