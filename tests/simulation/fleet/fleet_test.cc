// What pace steering promises, held for fleets of up to a million workers in virtual time (docs/adr/0041): their calls
// match the tasks that there are, by day and by night; nobody comes in a crowd twice; small fleets come at once.
//
//   fleet_test                                 100,000 workers, which the ordinary test run takes.
//   fleet_test --workers 1000000               A minute or two.
//   fleet_test --seed 7 --hours                With a line for each hour.
#include "tests/simulation/fleet/fleet.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace sheaf::simulation {
namespace {

constexpr int kHour = 60;

struct Options {
  uint32_t workers = 100'000;
  uint64_t seed = 1;
  bool shows_hours = false;
};

// Of some minutes, in parts of the tasks that come in one.
struct Load {
  double mean = 0;
  double min = 0;
  double max = 0;
  double queued_max = 0;
};

class Promises {
 public:
  explicit Promises(const Options& options)
      : options_(options), per_minute_(std::max<int64_t>(options.workers / 100, 1)), limits_(FleetLimits()) {}

  int Run() {
    DayAndNight();
    Restart();
    DemandChanges();
    MoreThanThereIsRoomFor();
    SmallFleets();
    SameAgain();
    fmt::print("{} workers, {} tasks a minute, seed {}\n", options_.workers, per_minute_, options_.seed);
    // As simulation_test has it.
    for (const std::string& promise : broken_) {
      fmt::print("seed {} breaks an invariant: {}\n", options_.seed, promise);
    }
    return broken_.empty() ? 0 : 1;
  }

 private:
  // As for a million by default, for each hundredth of them a hundredth: otherwise idle calls alone were more than the
  // tasks of a small fleet need.
  Limits FleetLimits() const {
    Limits limits;
    limits.idle_calls_per_second = std::max<int64_t>(limits.idle_calls_per_second * options_.workers / 1'000'000, 1);
    return limits;
  }
  Fleet FleetOfDays() const {
    return Fleet(
        {.seed = options_.seed, .num_workers = options_.workers, .first_calls = absl::Minutes(100), .has_days = true},
        limits_);
  }
  // A round begins each minute.
  static void RunMinutes(Fleet& fleet, int count, int64_t per_minute) {
    for (int i = 0; i < count; ++i) {
      fleet.CreateTasks(per_minute);
      fleet.RunUntil(fleet.now() + absl::Minutes(1));
    }
  }
  static Load LoadOf(const Fleet& fleet, int first, int count, int64_t per_minute) {
    Load load{.min = 1e9};
    for (const Fleet::Minute& minute :
         std::span(fleet.minutes()).subspan(static_cast<size_t>(first), static_cast<size_t>(count))) {
      const double calls = static_cast<double>(minute.num_calls) / static_cast<double>(per_minute);
      load.mean += calls / count;
      load.min = std::min(load.min, calls);
      load.max = std::max(load.max, calls);
      load.queued_max =
          std::max(load.queued_max, static_cast<double>(minute.num_queued) / static_cast<double>(per_minute));
    }
    return load;
  }
  void Hold(bool holds, const std::string& promise, const std::string& found) {
    fmt::print("{}  {}: {}\n", holds ? "holds " : "BROKEN", promise, found);
    if (!holds) broken_.push_back(promise);
  }

  void DayAndNight() {
    Fleet fleet = FleetOfDays();
    // In the first hours workers call that were never told when.
    constexpr int kWarm = 2;
    RunMinutes(fleet, (kWarm + 24) * kHour, per_minute_);
    Load worst{.min = 1e9};
    double furthest = 0;
    for (int hour = 0; hour < kWarm + 24; ++hour) {
      const Load load = LoadOf(fleet, hour * kHour, kHour, per_minute_);
      if (options_.shows_hours) {
        fmt::print(
            "        hour {:2}: {:.2f} of the workers available, calls {:.3f} of the tasks, {:.2f} to {:.2f} in "
            "a minute, at most {:.2f} minutes' tasks queued\n",
            hour, Availability::Part(absl::Hours(hour)), load.mean, load.min, load.max, load.queued_max);
      }
      if (hour < kWarm) continue;
      furthest = std::max(furthest, std::abs(load.mean - 1));
      worst.min = std::min(worst.min, load.min);
      worst.max = std::max(worst.max, load.max);
      worst.queued_max = std::max(worst.queued_max, load.queued_max);
    }
    Hold(furthest <= 0.2, "in each hour of a day calls are within 20 % of the tasks",
         fmt::format("{:.1f} % at most", furthest * 100));
    Hold(worst.max <= 2, "in no minute there are twice as many calls as tasks",
         fmt::format("{:.2f} to {:.2f}", worst.min, worst.max));
    Hold(worst.queued_max <= 0.1, "no task waits for the next minute",
         fmt::format("{:.2f} of a minute's at most", worst.queued_max));
  }

  void Restart() {
    Fleet fleet = FleetOfDays();
    constexpr int kStop = 4 * kHour;
    constexpr int kStart = kStop + 10;
    RunMinutes(fleet, kStop, per_minute_);
    fleet.StopServer();
    RunMinutes(fleet, kStart - kStop, per_minute_);
    fleet.StartServer(absl::Minutes(1));
    RunMinutes(fleet, 3 * kHour, per_minute_);
    const Load crowd = LoadOf(fleet, kStart, 1, per_minute_);
    const Load after = LoadOf(fleet, kStart + 1, 3 * kHour - 1, per_minute_);
    const Load later = LoadOf(fleet, kStart + 5, 3 * kHour - 5, per_minute_);
    Hold(after.max <= 2, "when all call in the minute after a restart, no minute after it has twice the calls",
         fmt::format("{:.1f} in that minute, {:.2f} in any after it", crowd.max, after.max));
    Hold(later.queued_max <= 0.1, "five minutes after a restart no task waits for the next minute",
         fmt::format("{:.2f} of a minute's at most", later.queued_max));
  }

  void DemandChanges() {
    Fleet fleet = FleetOfDays();
    const int64_t twice = 2 * per_minute_;
    RunMinutes(fleet, 4 * kHour, per_minute_);
    RunMinutes(fleet, 3 * kHour, twice);
    RunMinutes(fleet, 3 * kHour, per_minute_);
    const Load more = LoadOf(fleet, 4 * kHour, 3 * kHour, twice);
    const Load settled = LoadOf(fleet, 4 * kHour + 20, 3 * kHour - 20, twice);
    const Load less = LoadOf(fleet, 7 * kHour, 3 * kHour, per_minute_);
    const Load less_later = LoadOf(fleet, 8 * kHour + 30, kHour + 30, per_minute_);
    Hold(more.max <= 2 && settled.queued_max <= 0.1, "twice as many tasks are taken twenty minutes later",
         fmt::format("{:.2f} calls at most, {:.2f} of a minute's queued after that", more.max, settled.queued_max));
    Hold(less.max <= 2.5 && std::abs(less_later.mean - 1) <= 0.2,
         "half as many tasks have half as many calls an hour and a half later",
         fmt::format("{:.2f} at most before, {:.2f} after", less.max, less_later.mean));
  }

  // As many come as cannot be told to come later, one minute like the other.
  void MoreThanThereIsRoomFor() {
    Limits limits = limits_;
    limits.idle_calls_per_second = 1;
    Fleet fleet({.seed = options_.seed, .num_workers = options_.workers, .first_calls = absl::Minutes(1)}, limits);
    fleet.RunUntil(absl::Hours(16));
    const Load load = LoadOf(fleet, 8 * kHour, 8 * kHour, 1);
    // Nobody is told to stay away for longer.
    const double least = options_.workers / absl::ToDoubleMinutes(limits.next_call_max);
    Hold(load.mean <= 1.5 * least && load.max <= 2 * load.mean,
         "without tasks no crowd comes again, however many there are",
         fmt::format("{:.0f} a minute, {:.2f} times as many at most", load.mean, load.max / load.mean));
  }

  void SmallFleets() {
    const Limits limits;
    const auto take = [&](uint32_t workers, int64_t tasks, double seconds_max) {
      Fleet fleet({.seed = options_.seed, .num_workers = workers}, limits);
      fleet.RunUntil(absl::Minutes(10));
      fleet.CreateTasks(tasks);
      const double seconds = absl::ToDoubleSeconds(fleet.RunUntilTaken(absl::Minutes(20)));
      Hold(seconds <= seconds_max,
           fmt::format("{} idle workers take {} tasks within {} s", workers, tasks, seconds_max),
           fmt::format("{:.1f} s", seconds));
    };
    take(10, 10, 1.2);
    take(75, 75, 1.5);
    take(1'000, 100, 2);
    take(1'000, 1'000, 12);
    take(10'000, 1'000, 12);
  }

  void SameAgain() {
    const auto digest = [&](uint64_t seed) {
      Fleet fleet({.seed = seed, .num_workers = 10'000, .first_calls = absl::Minutes(10), .has_days = true}, limits_);
      RunMinutes(fleet, kHour, 100);
      return fleet.digest();
    };
    const uint64_t first = digest(options_.seed);
    Hold(digest(options_.seed) == first && digest(options_.seed + 1) != first, "one seed is one run",
         fmt::format("{:016x}", first));
  }

  const Options options_;
  const int64_t per_minute_;
  const Limits limits_;
  std::vector<std::string> broken_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("A fleet of workers that come and go, in virtual time");
  app.add_option("--workers", options.workers, "How many")->check(CLI::Range(1'000, 10'000'000));
  app.add_option("--seed", options.seed, "What chance does");
  app.add_flag("--hours", options.shows_hours, "A line for each hour of the day");
  CLI11_PARSE(app, argc, argv);
  const SystemClock clock;
  const absl::Time begin = clock.Now();
  const int code = Promises(options).Run();
  fmt::print("{:.1f} s\n", absl::ToDoubleSeconds(clock.Now() - begin));
  return code;
}

}  // namespace
}  // namespace sheaf::simulation

int main(int argc, char** argv) { return sheaf::simulation::Main(argc, argv); }
