// Scheduler: which round serves a worker next. Pure choice over the live rounds; leases nothing itself.
//
// Most urgent priority first. Between jobs of one priority, the job served longest ago; within a job, the oldest round.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/core/live_round.h"
#include "server/core/round_manager.h"
#include "server/core/worker_registry.h"

namespace sheaf {

// True if the worker offers the round's computation in a version that understands it.
bool Offers(const WorkerProfile& worker, const v1::Computation& computation);
// The requirement texts among `requirements` that the worker's labels fulfil.
std::vector<std::string> FulfilledBy(const WorkerProfile& worker, const std::vector<std::string>& requirements);

class Scheduler {
 public:
  // The rounds of the worker's population that may have work it can do, in the order to try them.
  std::vector<LiveRound*> RoundsFor(const WorkerProfile& worker, const RoundManager& rounds) const;
  // `round` has just handed out a task.
  void Served(const LiveRound& round);

 private:
  uint64_t num_served_ = 0;
  // Job to the value of num_served_ when it was last served.
  std::map<std::string, uint64_t> last_served_;
};

}  // namespace sheaf
