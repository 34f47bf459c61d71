// The deterministic simulation: real core, handlers, stores and worker loops in one thread, virtual time, faults
// everywhere. One seed, one run.
//
//   simulation_test                            1,000 seeds.
//   simulation_test --seed 17                  One seed; when an invariant breaks, with its last events.
//   simulation_test --first 5001 --seeds 5000 --require-coverage
//                                              What the ordinary test run does, in two halves: also fails if a legal
//                                              move or a crash point never came up.
//   simulation_test --exhaustive               A crash at every passage between store operations of some seeds.
//   simulation_test --forever                  Until an invariant breaks, with a line every ten seconds.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "tests/simulation/world.h"

namespace sheaf::simulation {
namespace {

constexpr int kViolationsShown = 3;
constexpr int kServersMin = 2;
constexpr int kServersMax = 4;
constexpr absl::Duration kProgressInterval = absl::Seconds(10);
// Small worlds of each kind; see --exhaustive.
constexpr uint64_t kExhaustiveSeeds[] = {19, 30, 151};

struct Options {
  std::string program;
  int64_t seeds = 1000;
  uint64_t first = 1;
  std::optional<uint64_t> seed;
  // Empty: as the seed has it.
  std::string store;
  std::string mode;
  double seconds = 0;
  int64_t crash_at = 0;
  bool has_many_servers = false;
  bool is_exhaustive = false;
  bool is_endless = false;
  bool exits_at_first = false;
  bool requires_coverage = false;
  bool shows_coverage = false;
  // Every so many seeds one is run twice.
  int64_t repeat_every = 100;
};

WorldOptions WorldOf(const Options& options, uint64_t seed) {
  WorldOptions world{.seed = seed, .crash_at = options.crash_at};
  const bool is_sqlite = options.store.empty() ? seed % 10 == 0 : options.store == "sqlite";
  const bool is_safety = options.mode.empty() ? seed % 3 == 0 : options.mode == "safety";
  world.store = is_sqlite ? StoreKind::kSqlite : StoreKind::kMemory;
  world.mode = is_safety ? Mode::kSafety : Mode::kLiveness;
  if (options.has_many_servers) {
    world.num_servers = kServersMin + static_cast<int>(seed % (kServersMax - kServersMin + 1));
    world.store = StoreKind::kSqlite;
  }
  return world;
}

std::string ReplayOf(const Options& options, const WorldOptions& world) {
  return fmt::format("{} --seed {} --store {} --mode {}{}{}", options.program, world.seed,
                     world.store == StoreKind::kSqlite ? "sqlite" : "memory",
                     world.mode == Mode::kSafety ? "safety" : "liveness",
                     world.crash_at > 0 ? fmt::format(" --crash-at {}", world.crash_at) : "",
                     world.num_servers > 1 ? " --many-servers" : "");
}

struct Outcome {
  std::optional<Violation> violation;
  uint64_t digest = 0;
  int64_t num_passages = 0;
};

// The world that is running, for OnAbort.
std::string running_replay;

// A CHECK failed: says in which world.
void OnAbort(int /*signal*/) { static_cast<void>(!write(STDERR_FILENO, running_replay.data(), running_replay.size())); }

Outcome RunWorld(const WorldOptions& options, Statistics& statistics) {
  World world(options, statistics);
  Outcome outcome{.violation = world.Run()};
  outcome.digest = world.digest();
  outcome.num_passages = world.num_passages();
  return outcome;
}

class Runs {
 public:
  explicit Runs(Options options) : options_(std::move(options)), start_(clock_.Now()), next_line_(start_) {}

  int Run() {
    options_.is_exhaustive ? RunCrashPoints() : RunSeeds();
    const double seconds = absl::ToDoubleSeconds(clock_.Now() - start_);
    fmt::print("{}", statistics_.ToText(seconds, violations_));
    if (options_.shows_coverage) fmt::print("\n{}", statistics_.CoverageText());
    bool is_complete = true;
    if (options_.requires_coverage && violations_ == 0) {
      for (const std::string& missing :
           options_.has_many_servers ? statistics_.MissingOfMany() : statistics_.Missing()) {
        fmt::print("not covered    {}\n", missing);
        is_complete = false;
      }
    }
    return violations_ == 0 && is_complete ? 0 : 1;
  }

 private:
  bool IsOver() {
    const absl::Time now = clock_.Now();
    if (options_.is_endless && now >= next_line_) {
      next_line_ = now + kProgressInterval;
      fmt::print("{} seeds, {} events in {}\n", statistics_.seeds, statistics_.events,
                 absl::FormatDuration(absl::Trunc(now - start_, absl::Seconds(1))));
      std::fflush(stdout);
    }
    return violations_ >= kViolationsShown || ((options_.is_endless || options_.exits_at_first) && violations_ > 0) ||
           (options_.seconds > 0 && now - start_ > absl::Seconds(options_.seconds));
  }

  void RunSeeds() {
    const uint64_t first = options_.seed.value_or(options_.first);
    const auto count = options_.seed.has_value() ? 1 : static_cast<uint64_t>(options_.seeds);
    const uint64_t end = options_.is_endless ? std::numeric_limits<uint64_t>::max() : first + count;
    for (uint64_t seed = first; seed < end && !IsOver(); ++seed) {
      const WorldOptions world = WorldOf(options_, seed);
      NoteRunning(world);
      const Outcome outcome = RunWorld(world, statistics_);
      if (outcome.violation.has_value()) {
        Report(world, *outcome.violation);
      } else if (seed % options_.repeat_every == 0) {
        CheckRepeats(world, outcome);
      }
    }
  }

  void NoteRunning(const WorldOptions& world) const {
    running_replay =
        fmt::format("seed {} ends the process. Replay it with:\n  {}\n", world.seed, ReplayOf(options_, world));
  }

  void CheckRepeats(const WorldOptions& world, const Outcome& outcome) {
    Statistics ignored;
    if (RunWorld(world, ignored).digest == outcome.digest) return;
    Report(world, {.invariant = "one seed, one run", .what = "a second run did something else"});
  }

  // Every passage between store operations of some worlds, in turn.
  void RunCrashPoints() {
    int64_t num_points = 0;
    for (const uint64_t seed : kExhaustiveSeeds) {
      WorldOptions world = WorldOf(options_, seed);
      // Beyond the last: how many there are.
      world.crash_at = std::numeric_limits<int64_t>::max();
      Statistics ignored;
      const int64_t passages = RunWorld(world, ignored).num_passages;
      for (world.crash_at = 1; world.crash_at <= passages && !IsOver(); ++world.crash_at) {
        NoteRunning(world);
        const Outcome outcome = RunWorld(world, statistics_);
        if (outcome.violation.has_value()) Report(world, *outcome.violation);
        ++num_points;
      }
      fmt::print("seed {} has {} passages between store operations\n", seed, passages);
    }
    fmt::print("crash points   {}\n", num_points);
  }

  void Report(WorldOptions world, const Violation& violation) {
    if (++violations_ > kViolationsShown) return;
    Statistics ignored;
    world.keep_journal = true;
    World replay(world, ignored);
    replay.Run();
    fmt::print("\nseed {} breaks an invariant: {}\n  {}\nIts last events:\n", world.seed, violation.invariant,
               violation.what);
    for (const std::string& line : replay.journal().lines()) fmt::print("  {}\n", line);
    fmt::print("Replay it with:\n  {}\n\n", ReplayOf(options_, world));
    std::fflush(stdout);
  }

  const Options options_;
  const SystemClock clock_;
  const absl::Time start_;
  absl::Time next_line_;
  Statistics statistics_;
  int64_t violations_ = 0;
};

}  // namespace
}  // namespace sheaf::simulation

int main(int argc, char** argv) {
  sheaf::simulation::Options options;
  options.program = argv[0];
  bool is_loud = false;
  CLI::App app("Sheaf's deterministic simulation");
  CLI::Option* seeds = app.add_option("--seeds", options.seeds, "Seeds to run")->check(CLI::PositiveNumber);
  app.add_option("--first", options.first, "The first of them");
  app.add_option("--seed", options.seed, "Run this one only");
  app.add_option("--store", options.store, "Where: memory or sqlite; by default most on memory, every tenth on SQLite")
      ->check(CLI::IsMember({"memory", "sqlite"}));
  app.add_option("--mode", options.mode,
                 "safety: faults to the end; liveness: they stop, and everything must end in time; by default every "
                 "third seed is one of safety")
      ->check(CLI::IsMember({"safety", "liveness"}));
  app.add_option("--crash-at", options.crash_at, "The server crashes once, at this passage between store operations")
      ->check(CLI::PositiveNumber);
  app.add_flag("--many-servers", options.has_many_servers,
               "Two to four servers on one database, as the seed has it, instead of one on its own store");
  app.add_flag("--exhaustive", options.is_exhaustive,
               "Crash some small worlds at every passage between store operations in turn");
  app.add_flag("--forever", options.is_endless, "Growing seeds until an invariant breaks");
  app.add_flag("--exit-at-first", options.exits_at_first, "Stop when the first invariant breaks");
  app.add_flag("--require-coverage", options.requires_coverage,
               "Fail if a legal move was never taken, or a store operation never crashed before and after");
  app.add_flag("--coverage", options.shows_coverage, "Show how often each move and each crash point came up");
  CLI::Option* seconds = app.add_option("--seconds", options.seconds, "Stop after this long");
  app.add_flag("--loud", is_loud, "Show the log of server and workers");
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGABRT, sheaf::simulation::OnAbort);
  if (seconds->count() > 0 && seeds->count() == 0) options.seeds = int64_t{1} << 40;
  sheaf::ConfigureLog("simulation", is_loud ? sheaf::LogLevel::kInfo : sheaf::LogLevel::kOff);
  return sheaf::simulation::Runs(std::move(options)).Run();
}
