// What a server's log says of batches that took its core's thread for too long: everybody waits for those, so that each
// fails the test. The fixtures that run servers as processes look when a server ends, and no test can forget it.
//
//   CheckNoSlowBatches(log);
//
// Memory that is touched for the first time costs a quarter of a microsecond a page, and fifty times as much on some
// virtual machines. What it costs here is measured, and is not the server's.
//
// Without meaning, and therefore without effect, where sanitizers or missing optimisation make everything slower.
#pragma once

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cpu_time.h"

namespace sheaf {

// The first touch of a page on this machine, beyond what it takes on most.
inline double MillisecondsPerPageFault() {
  constexpr size_t kPage = 4096;
  constexpr size_t kBytes = 4096 * kPage;
  constexpr double kUsual = 0.25e-3;
  const double seconds = CpuSeconds([] {
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    // Huge ones are touched at once.
    madvise(memory, kBytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < kBytes; i += kPage) static_cast<volatile char*>(memory)[i] = 1;
    munmap(memory, kBytes);
  });
  return std::max(1e3 * seconds / (kBytes / kPage) - kUsual, 0.0);
}

// The lines of a log that speak of one.
inline std::vector<std::string> SlowBatchesIn(
    [[maybe_unused]] const std::string& log,
    [[maybe_unused]] const std::function<double()>& per_page_fault = MillisecondsPerPageFault) {
  std::vector<std::string> slow;
#ifdef SHEAF_JUDGE_BATCHES
  static const std::regex kSlow(
      "a batch took ([0-9]+) ms of the core's thread, more than ([0-9]+): .*; page faults: ([0-9]+)");
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::smatch said;
    if (!std::regex_search(line, said, kSlow)) continue;
    const double own = std::stod(said[1]) - std::stod(said[3]) * per_page_fault();
    if (own > std::stod(said[2])) slow.push_back(line);
  }
#endif
  return slow;
}

// Fails the test, and lets it go on: also for destructors.
inline void CheckNoSlowBatches(const std::string& log) { CHECK(SlowBatchesIn(log) == std::vector<std::string>()); }

}  // namespace sheaf
