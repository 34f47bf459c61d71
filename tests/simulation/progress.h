// Progress: what must come to its end, and by when, once nothing goes wrong any more.
//
//   task    three leases of its round after the faults stopped (or the round was created), and kRetries. One lease for
//           what a dead worker holds; the retry policy's longest backoff and a worker's longest pause between calls are
//           kRetries. Excepted are queued tasks of rounds where each worker may take but a few.
//   round   kEnding after its deadline; and kEnding after its last task may end, unless an operator could still requeue
//           a task that it waits for.
#pragma once

#include "absl/time/time.h"
#include "server/core/limits.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/sim_server.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

class Progress {
 public:
  // All outlive this.
  Progress(Journal& journal, Statistics& statistics, SimServer& server, const Limits& limits)
      : journal_(journal), statistics_(statistics), server_(server), limits_(limits) {}

  // The faults stopped at `calm`. Once a second.
  void Check(absl::Time calm, absl::Time now);

 private:
  void CheckRound(const RoundRecord& round, absl::Time calm, absl::Time now);

  Journal& journal_;
  Statistics& statistics_;
  SimServer& server_;
  const Limits& limits_;
};

}  // namespace sheaf::simulation
