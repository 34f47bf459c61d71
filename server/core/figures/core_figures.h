// CoreFigures: what is counted of the core's work, for whoever looks on (docs/reference/metrics.md). Nothing is decided
// by it: a server that nobody measures does the same.
//
//   figures.Of(round.counted.slot).leases_granted.Add(3);
//   const absl::Duration begin = figures.watch();       // How long work takes; 0 where nobody measures.
//   figures.fold_seconds.Observe(absl::ToDoubleSeconds(figures.watch() - begin));
//
// The core counts as it goes. What a batch that fails takes back stays counted: such batches are counted, too
// (BatchFigures::failed), and gauges are right again with the next batch. Thread-safe to read; and to write, but for
// `slots`, which the core owns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "absl/time/time.h"
#include "base/counter.h"
#include "base/histogram.h"
#include "server/core/figures/population_slots.h"
#include "server/core/figures/worker_ages.h"

namespace sheaf {

// Of one population, or of all that share a slot.
struct PopulationFigures {
  // By TaskState, of rounds that collect: as `sheaf queue describe` has them.
  std::array<Gauge, 7> tasks;
  // By RoundState, of rounds that have not ended.
  std::array<Gauge, 7> rounds;
  // When the first of the tasks that wait could be leased, in nanoseconds of Unix time.
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  Gauge oldest_available{kNever};
  Gauge parked_polls;
  // Of contributions on disk that no checkpoint covers.
  Gauge spooled_bytes;
  WorkerAges workers;

  Counter rounds_created;
  // By RoundState.
  std::array<Counter, 7> rounds_ended;
  Counter tasks_created;
  Counter leases_granted;
  // By AttemptOutcome.
  std::array<Counter, 6> leases_ended;
  // By v1::ResultVerdict::Verdict; 0: one that is not known here.
  std::array<Counter, 8> verdicts;
};

struct CoreFigures {
  using Watch = absl::Duration (*)();
  // Nobody measures.
  static absl::Duration NoWatch() { return absl::ZeroDuration(); }

  explicit CoreFigures(Watch its_watch = NoWatch) : watch(its_watch) {}

  PopulationFigures& Of(size_t slot) { return populations[slot]; }

  const Watch watch;
  PopulationSlots slots;
  std::array<PopulationFigures, PopulationSlots::kNum> populations;

  Counter leases_resent;
  Counter leases_renewed;
  // From when a task could be leased until it was.
  Histogram task_wait_seconds{kWaitBounds};
  // From the lease that brought it until the contribution was accepted.
  Histogram task_run_seconds{kWaitBounds};

  // Of polls that were answered: how long they were parked.
  Histogram poll_wait_seconds{kWaitBounds};
  Counter polls_with_leases;
  Counter polls_without_leases;
  Counter polls_abandoned;
  // GetRound calls that wait for a change.
  Gauge waiting_watches;

  Histogram contribution_bytes{kByteBounds};
  Histogram fold_seconds{kDurationBounds};
  Histogram checkpoint_seconds{kDurationBounds};
  // From the last contribution until the aggregate is released.
  Histogram seal_seconds{kDurationBounds};
  // From a round's creation until its aggregate is released.
  Histogram round_seconds{kWaitBounds};
  // Of the accumulators of all rounds, after the newest fold that is known.
  Gauge accumulator_bytes;
};

}  // namespace sheaf
