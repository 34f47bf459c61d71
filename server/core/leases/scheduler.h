// Scheduler: which round serves a worker next. Pure choice over the live rounds; leases nothing itself.
//
//   for (LiveRound* round : scheduler.RoundsFor(worker, rounds, {.since = worker.looked_at})) {
//     scheduler.Served(*round, rounds);       // If it handed out a task: its job's turn has been.
//   }
//
// Most urgent priority first. Between jobs of one priority, the job served longest ago; within a job, the oldest round.
// Only rounds of the worker's own population are looked at: what others have costs it nothing, and a job of theirs that
// has the same name is another job. Not thread-safe: the core's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/core/rounds/live_round.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/workers/worker_registry.h"

namespace sheaf {

// True if the worker offers the round's computation in a version that understands it.
bool Offers(const WorkerProfile& worker, const v1::Computation& computation);

class Scheduler {
 public:
  struct Look {
    // For tasks to prepare, of rounds whose broadcast has not come; else for tasks to run.
    bool for_announced = false;
    // RoundWork::version(): only at rounds to which work came after it.
    int64_t since = 0;
  };
  // The rounds of the worker's population that may have work it can do, in the order to try them.
  std::vector<LiveRound*> RoundsFor(const WorkerProfile& worker, const LiveRounds& rounds, const Look& look) const;
  // `round` has just handed out a task.
  void Served(const LiveRound& round, const LiveRounds& rounds);

  // Of jobs whose turn is remembered.
  size_t size() const;

 private:
  // Job to the value of num_served_ when it was last served. A job that is not in it was served longer ago than all
  // that are.
  using Turns = std::map<std::string, uint64_t>;
  static void ForgetOldest(Turns& turns);

  uint64_t num_served_ = 0;
  // By population.
  std::map<std::string, Turns> last_served_;
};

}  // namespace sheaf
