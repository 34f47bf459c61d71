// FaultPlan: how the world of one seed misbehaves. The probabilities are themselves drawn from the seed, many of them
// zero, so that some worlds are calm but for one kind of fault and others are stormy.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "base/random.h"

namespace sheaf::simulation {

struct FaultPlan {
  // --- The network, per call ---
  double request_lost = 0;
  double response_lost = 0;
  double duplicated = 0;
  double reset = 0;
  double delayed = 0;
  absl::Duration delay_max;
  // Per seat and second.
  double partition = 0;
  absl::Duration partition_max;
  // Per second: some links stop one by one, and come back one by one.
  double swizzle = 0;

  // --- The server ---
  // Calls need tokens, each for its role and population.
  bool uses_tokens = false;
  // Mean number of passages between store operations from one crash to the next; 0: it never crashes.
  int64_t operations_per_crash = 0;
  absl::Duration downtime_max;
  // Per second.
  double graceful_restart = 0;
  double disk_full = 0;

  // --- Workers, per seat and second ---
  double worker_crash = 0;
  double worker_stop = 0;
  double worker_drained = 0;

  // --- Computations, per run ---
  // What runs well takes up to this long.
  absl::Duration run_max;
  double run_slow = 0;
  double run_hangs = 0;
  double run_fails = 0;
  double run_fails_for_good = 0;
  double run_wrong = 0;

  // --- Announced rounds ---
  // How many of the rounds are announced before they are opened; in most worlds none.
  double announced = 0;
  // What is prepared well for such a round takes up to this long. It is slow, hangs and fails as runs do.
  absl::Duration prepare_max;
  // The worker in seat n prepares up to (n + this) % 3 tasks ahead.
  int prepare_ahead = 0;

  // What concerns announced rounds comes from a source of its own: the other worlds stay as they are without them.
  static FaultPlan Draw(Random& random, Random& of_announced);
};

}  // namespace sheaf::simulation
