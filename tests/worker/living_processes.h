// Which processes of this machine live, by a word of their command lines: whoever asserts that nobody is left has the
// path of its own folder there.
//
//   CHECK(LivingProcesses(folder.path()).empty());
#pragma once

#include <sys/types.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace sheaf {

// Those with `word` in their command lines. A process that ended and was not waited for has none.
inline std::vector<pid_t> LivingProcesses(const std::string& word) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size()) continue;
    std::ifstream file(entry.path() / "cmdline");
    // It may end while this is read. The word has no end of a line in it.
    for (std::string line; std::getline(file, line);) {
      if (line.find(word) == std::string::npos) continue;
      found.push_back(pid);
      break;
    }
  }
  return found;
}

}  // namespace sheaf
