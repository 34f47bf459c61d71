// Explain: why a round is not done yet, or how it ended, in sentences.
//
//   const WhoIsThere who{.unmet = unmet, .workers = workers, .polls = polls};
//   ASSIGN_OR_RETURN(v1::ExplainRoundResponse answer, ExplainRound(RoundId("r-2k5m"), context, rounds, who, now));
//
// Runs in the core's thread, inside a batch. Reads only.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/inspection/unmet_requirements.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/sync/parked_polls.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {

// The workers, as far as it matters to one round.
struct WhoIsThere {
  // What UnmetRequirements::OfRound found.
  const UnmetRequirements::Found& unmet;
  const WorkerRegistry& workers;
  const ParkedPolls& polls;
};

// NOT_FOUND. Reads only. O(1000 workers * their labels), for each of at most four requirements.
absl::StatusOr<v1::ExplainRoundResponse> ExplainRound(const RoundId& id, CoreContext& context, LiveRounds& rounds,
                                                      const WhoIsThere& who, absl::Time now);

}  // namespace sheaf
