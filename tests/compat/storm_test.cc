// Servers and workers of 0.1 and of today in one federation, under everything that can go wrong: killed with SIGKILL,
// stopped, their clocks stepped, their connections and calls disturbed. What each round releases shows each
// contribution that was lost or counted twice. Environment: SHEAF_COMPAT_LOOPS, SHEAF_COMPAT_SEED.
#include <cstdlib>

#include "tests/compat/released.h"
#include "tests/e2e/history_storm.h"
#include "tests/e2e/rounds.h"

namespace sheaf {
namespace {

constexpr absl::Duration kLease = absl::Seconds(1);

int64_t Setting(const char* name, int64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::stoll(value);
}

// Rounds under faults; in the middle of each the server is killed and replaced by `replaced_by`.
void Storm(Programs programs, std::vector<std::string> workers, const std::string& replaced_by) {
  SystemRandom chance;
  const auto seed =
      static_cast<uint64_t>(Setting("SHEAF_COMPAT_SEED", static_cast<int64_t>(chance.Below(1'000'000'000))));
  INFO("seed " << seed);
  SeededRandom random(seed);
  HistoryStorm storm(
      {.num_workers = 8, .lease = kLease, .seed = seed, .programs = programs, .worker_programs = std::move(workers)});
  Federation& federation = storm.federation();
  HistoryReport total;
  for (int64_t loop = 1; loop <= Setting("SHEAF_COMPAT_LOOPS", 1); ++loop) {
    INFO("loop " << loop);
    // Two seconds of work at least, so that what happens after one happens in the middle.
    const std::string round = StartRound(federation, StormRound(random, kLease, 200, absl::Milliseconds(400)));
    storm.Rage(round, absl::Seconds(1));
    REQUIRE(RoundOf(federation.transport(), round).state() == v1::COLLECTING);
    storm.ReplaceServer(replaced_by);
    storm.KillWorker();
    storm.Rage(round, absl::Seconds(4));
    Await(federation, round, absl::Seconds(60));
    const HistoryReport report = storm.history().Check(round, CountsOf(federation.transport(), round));
    INFO(fmt::format("{}", fmt::join(report.violations, "\n")));
    REQUIRE(report.ok());
    REQUIRE(report.acknowledged <= report.counted);
    REQUIRE(report.counted <= report.attempted);
    total.Add(report);
  }
  const HistoryStorm::Counts& counts = storm.counts();
  Measured(
      "seed {}: {} attempted, {} acknowledged, {} counted, {} duplicated, {} lost; server killed {} times, workers {}; "
      "{} stops, {} clock steps, {} faults of connections, {} of calls",
      seed, total.attempted, total.acknowledged, total.counted, total.duplicated, total.lost, counts.server_kills,
      counts.worker_kills, counts.stops, counts.clock_steps, storm.num_network_faults(), storm.num_call_faults());
}

TEST_CASE("Workers of 0.1 at a server of today, whatever is killed: what was acknowledged is counted, each once") {
  Storm({}, {Released().worker}, Programs().sheafd);
}

TEST_CASE("Workers of today at a server of 0.1, whatever is killed: what was acknowledged is counted, each once") {
  Storm({.sheafd = Released().sheafd}, {Programs().worker}, Released().sheafd);
}

TEST_CASE("Workers of both at a server of 0.1 that today's replaces mid-round: what was acknowledged is counted") {
  Storm({.sheafd = Released().sheafd}, {Released().worker, Programs().worker}, Programs().sheafd);
}

}  // namespace
}  // namespace sheaf
