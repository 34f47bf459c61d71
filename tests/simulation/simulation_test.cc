// The deterministic simulation: real core, handlers, stores and worker loops in one thread, virtual time, faults
// everywhere. One seed, one run.
//
//   simulation_test                       What the ordinary test run does: 1,000 seeds, at most a minute.
//   simulation_test --seed 17             One seed; when an invariant breaks, with its last events.
//   simulation_test --seconds 600         As many seeds as ten minutes hold.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"
#include "tests/simulation/world.h"

namespace sheaf::simulation {
namespace {

struct Options {
  int64_t seeds = 1000;
  uint64_t first = 1;
  std::optional<uint64_t> seed;
  // Empty: most seeds on memory, some on SQLite.
  std::string store;
  double seconds = 60;
  // Every so many seeds one is run twice.
  int64_t repeat_every = 100;
};

StoreKind KindOf(const Options& options, uint64_t seed) {
  if (!options.store.empty()) return options.store == "sqlite" ? StoreKind::kSqlite : StoreKind::kMemory;
  return seed % 10 == 0 ? StoreKind::kSqlite : StoreKind::kMemory;
}

struct Outcome {
  std::optional<Violation> violation;
  uint64_t digest = 0;
};

Outcome RunSeed(uint64_t seed, StoreKind kind, Statistics& statistics) {
  World world(seed, kind, statistics, /*keep_journal=*/false);
  Outcome outcome{.violation = world.Run()};
  outcome.digest = world.digest();
  return outcome;
}

void Report(const std::string& program, uint64_t seed, StoreKind kind, const Violation& violation) {
  Statistics ignored;
  World replay(seed, kind, ignored, /*keep_journal=*/true);
  replay.Run();
  fmt::print("\nseed {} breaks an invariant: {}\n  {}\nIts last events:\n", seed, violation.invariant, violation.what);
  for (const std::string& line : replay.journal().lines()) fmt::print("  {}\n", line);
  fmt::print("Replay it with:\n  {} --seed {} --store {}\n\n", program, seed,
             kind == StoreKind::kSqlite ? "sqlite" : "memory");
}

// The invariant that broke, if one did.
std::optional<Violation> CheckSeed(const Options& options, uint64_t seed, Statistics& statistics) {
  const StoreKind kind = KindOf(options, seed);
  Outcome outcome = RunSeed(seed, kind, statistics);
  if (outcome.violation.has_value() || seed % options.repeat_every != 0) return outcome.violation;
  Statistics ignored;
  if (RunSeed(seed, kind, ignored).digest == outcome.digest) return std::nullopt;
  return Violation{.invariant = "one seed, one run", .what = "a second run did something else"};
}

int RunAll(const std::string& program, const Options& options) {
  const SystemClock clock;
  const absl::Time start = clock.Now();
  constexpr int kViolationsShown = 3;
  Statistics statistics;
  int64_t violations = 0;
  const uint64_t first = options.seed.value_or(options.first);
  const uint64_t end = options.seed.has_value() ? first + 1 : first + static_cast<uint64_t>(options.seeds);
  for (uint64_t seed = first; seed < end; ++seed) {
    if (std::optional<Violation> violation = CheckSeed(options, seed, statistics)) {
      if (++violations <= kViolationsShown) Report(program, seed, KindOf(options, seed), *violation);
    }
    if (violations >= kViolationsShown || clock.Now() - start > absl::Seconds(options.seconds)) break;
  }
  fmt::print("{}", statistics.ToText(absl::ToDoubleSeconds(clock.Now() - start), violations));
  return violations == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sheaf::simulation

int main(int argc, char** argv) {
  using sheaf::simulation::Options;
  Options options;
  bool is_loud = false;
  CLI::App app("Sheaf's deterministic simulation");
  CLI::Option* seeds = app.add_option("--seeds", options.seeds, "Seeds to run")->check(CLI::PositiveNumber);
  app.add_option("--first", options.first, "The first of them");
  app.add_option("--seed", options.seed, "Run this one only");
  app.add_option("--store", options.store, "Where: memory or sqlite; by default most on memory, every tenth on SQLite")
      ->check(CLI::IsMember({"memory", "sqlite"}));
  CLI::Option* seconds = app.add_option("--seconds", options.seconds, "Stop after this long");
  app.add_flag("--loud", is_loud, "Show the log of server and workers");
  CLI11_PARSE(app, argc, argv);
  if (seconds->count() > 0 && seeds->count() == 0) options.seeds = int64_t{1} << 40;
  sheaf::ConfigureLog("simulation", is_loud ? sheaf::LogLevel::kInfo : sheaf::LogLevel::kOff);
  return sheaf::simulation::RunAll(argv[0], options);
}
