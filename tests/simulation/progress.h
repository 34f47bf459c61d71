// Progress: what must come to its end, and by when, once nothing goes wrong any more.
//
//   task    three leases of its round after the faults stopped (or the round was created), the longest backoff of a
//           failed task (retry_backoff_max), the longest pause of a worker between calls (Backoff::kMax), and two
//           seconds. Excepted are queued tasks of rounds where each worker may take but a few.
//   round   three seconds after its deadline; and three seconds after its last task may end, unless an operator could
//           still requeue a task that it waits for.
#pragma once

#include "absl/time/time.h"
#include "server/core/limits/limits.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/sim_servers.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

class Progress {
 public:
  // All outlive this.
  Progress(Journal& journal, Statistics& statistics, SimServers& server, const Limits& limits)
      : journal_(journal), statistics_(statistics), server_(server), limits_(limits) {}

  // The faults stopped at `calm`. Once a second.
  void Check(absl::Time calm, absl::Time now);

 private:
  void CheckRound(const RoundRecord& round, absl::Time calm, absl::Time now);

  Journal& journal_;
  Statistics& statistics_;
  SimServers& server_;
  const Limits& limits_;
};

}  // namespace sheaf::simulation
