#include "server/metrics/process_status.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace sheaf {
namespace {

constexpr char kFiles[] = "/proc/self/fd";

// Linux says since 6.2 how many there are; before, 50,000 connections are as many entries to read.
int64_t CountOpenFiles() {
  struct stat status = {};
  if (stat(kFiles, &status) == 0 && status.st_size > 0) return status.st_size;
  std::error_code error;
  const std::filesystem::directory_iterator files(kFiles, error);
  return error ? 0 : std::distance(begin(files), end(files));
}

}  // namespace

ProcessStatus ReadProcessStatus() {
  ProcessStatus status;
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    status.cpu = absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  }
  // "sheafd" in parentheses, then the fields from the third on; see proc(5).
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  const std::vector<std::string> values{std::istream_iterator<std::string>(fields), {}};
  const auto field = [&](size_t number) -> int64_t {
    return values.size() > number - 3 ? std::strtoll(values[number - 3].c_str(), nullptr, 10) : 0;
  };
  status.num_threads = field(20);
  status.virtual_bytes = field(23);
  status.resident_bytes = field(24) * sysconf(_SC_PAGESIZE);
  status.num_open_files = CountOpenFiles();
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) status.open_files_max = static_cast<int64_t>(files.rlim_cur);
  return status;
}

}  // namespace sheaf
