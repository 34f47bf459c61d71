#include "tests/crash/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/log.h"

namespace sheaf::crash {
namespace {
constexpr int64_t kViolationsShown = 10;
}  // namespace

Report::Report(std::string what) : what_(std::move(what)), start_(clock_.Now()) {
  ConfigureLog("crash", LogLevel::kOff);
}

void Report::Count(const std::string& violation, const std::function<std::string()>& where) {
  ++count_;
  if (!violation.empty()) Violate(fmt::format("{}: {}", where(), violation));
}

void Report::Violate(const std::string& violation) {
  if (++num_violations_ <= kViolationsShown) fmt::print("  {}\n", violation);
}

void Report::Print() const {
  fmt::print("{}: {} run", what_, count_);
  for (const auto& [what, number] : notes_) fmt::print(", {} {}", number, what);
  fmt::print(", {} violations, {:.1f} s\n", num_violations_, absl::ToDoubleSeconds(clock_.Now() - start_));
}

int Effort() {
  const char* text = std::getenv("SHEAF_CRASH_SEEDS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

DiskServer::Options ServerOptions(uint64_t seed) {
  DiskServer::Options options{.seed = seed};
  options.limits.checkpoint_contributions = 3;
  options.limits.retry_backoff_max = absl::Seconds(10);
  return options;
}

}  // namespace sheaf::crash
