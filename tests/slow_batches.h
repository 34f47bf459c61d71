// What a server's log says of batches that took its core's thread for too long: everybody waits for those, so that each
// fails the test. The fixtures that run servers as processes look when a server ends, and no test can forget it.
//
//   CheckNoSlowBatches(log);
//
// Without meaning, and therefore without effect, where sanitizers or missing optimisation make everything slower.
#pragma once

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace sheaf {

// The lines of a log that speak of one.
inline std::vector<std::string> SlowBatchesIn([[maybe_unused]] const std::string& log) {
  std::vector<std::string> slow;
#ifdef SHEAF_JUDGE_BATCHES
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("of the core's thread, more than") != std::string::npos) slow.push_back(line);
  }
#endif
  return slow;
}

// Fails the test, and lets it go on: also for destructors.
inline void CheckNoSlowBatches(const std::string& log) { CHECK(SlowBatchesIn(log) == std::vector<std::string>()); }

}  // namespace sheaf
