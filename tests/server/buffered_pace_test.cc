// Goal: what slow workers cost. The real core in virtual time, and workers whose tasks take log-normal times, as those
// of devices do: how long until a number of contributions has been released, by rounds that wait for all of their
// tasks, by rounds with more tasks than they need, and by rounds that continue one another.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

#include "tests/server/slow_devices.h"

namespace sheaf {
namespace {

constexpr int kWorkers = 42;
constexpr int kGoal = 32;
constexpr int kRounds = 20;
constexpr double kSigma = 1.5;

struct Pace {
  absl::Duration time;
  // Of leases, how many brought nothing.
  double wasted = 0;
  // Of contributions that were released.
  double mean_staleness = 0;
  int64_t num_contributions = 0;
};

// Each round has so many tasks.
Pace Run(int num_tasks, bool buffered) {
  SlowDevices devices({.num_devices = kWorkers, .sigma = kSigma},
                      [](const v1::Lease& lease) { return Result(lease, 1); });
  const auto announce = [&](const std::string& before) {
    v1::RoundSpec spec = SumRound(num_tasks);
    spec.set_goal(kGoal);
    if (buffered) spec.set_continues(before);
    return devices.Announce(spec);
  };
  Pace pace;
  std::string next = announce("");
  for (int number = 1; number <= kRounds; ++number) {
    const std::string round = next;
    if (number < kRounds) next = announce(round);
    devices.Open(round);
    const v1::Round released = devices.Finish(round);
    pace.num_contributions += released.num_contributions();
    for (const auto& [staleness, count] : released.contributions_by_staleness()) {
      pace.mean_staleness += static_cast<double>(staleness) * static_cast<double>(count);
    }
  }
  pace.time = devices.elapsed();
  pace.wasted = 1 - static_cast<double>(pace.num_contributions) / static_cast<double>(devices.num_leases());
  pace.mean_staleness /= static_cast<double>(pace.num_contributions);
  return pace;
}

std::string Text(const Pace& pace) {
  return fmt::format("{} for {} contributions, {:.0f} % of the work in vain, mean staleness {:.2f}",
                     absl::FormatDuration(absl::Trunc(pace.time, absl::Seconds(1))), pace.num_contributions,
                     100 * pace.wasted, pace.mean_staleness);
}

TEST_CASE("With slow workers rounds that continue one another take a third of the time of rounds that wait, or less") {
  const Pace waiting = Run(kGoal, false);
  const Pace over_selected = Run(kWorkers, false);
  const Pace buffered = Run(kWorkers, true);
  WARN("waiting for all:  " << Text(waiting));
  WARN("over-selected:    " << Text(over_selected));
  WARN("buffered:         " << Text(buffered));
  CHECK(buffered.num_contributions >= kRounds * kGoal);
  CHECK(buffered.time <= waiting.time / 3);
  CHECK(buffered.time <= over_selected.time);
  CHECK(buffered.wasted < over_selected.wasted / 2);
}

}  // namespace
}  // namespace sheaf
