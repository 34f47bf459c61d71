// Workers in a closed loop: each hands in what it holds and takes as many tasks again.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/bench.h"
#include "bench/closed_loop.h"
#include "sdk/cpp/client/channel_options.h"

namespace sheaf::bench {

struct SyncLoad {
  // Each on a connection of its own.
  int workers;
  // Tasks per Sync.
  int batch;
  // At least as many tasks as the server can possibly complete; a round holds at most 100,000.
  int num_rounds;
  int tasks_per_round;
  // See LoopOptions.
  int parts = 1;
  std::function<absl::Duration()> other_cpu_time = [] { return absl::ZeroDuration(); };
};

// Creates the rounds and runs the loop for the set-up's duration; a unit of the result is an accepted contribution.
// INTERNAL if one is not accepted. Workers call the servers in turns; their CPU time is counted together.
absl::StatusOr<LoopResult> RunSyncLoop(const Setup& setup, const std::vector<const ChildProcess*>& servers,
                                       const SyncLoad& load, const ChannelSecurity& security);

}  // namespace sheaf::bench
