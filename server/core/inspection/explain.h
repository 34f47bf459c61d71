// Explain: why a round is not done yet, or how it ended, in sentences.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/inspection/unmet_requirements.h"
#include "server/core/lifecycle/round_manager.h"
#include "server/core/sync/work_desk.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {

// The workers, as far as it matters to one round.
struct WhoIsThere {
  // What UnmetRequirements::OfRound found.
  const UnmetRequirements::Found& unmet;
  const WorkerRegistry& workers;
  const WorkDesk& desk;
};

// NOT_FOUND. Reads only. O(1000 workers * their labels), for each of at most four requirements.
absl::StatusOr<v1::ExplainRoundResponse> ExplainRound(const RoundId& id, CoreContext& context, RoundManager& rounds,
                                                      const WhoIsThere& who, absl::Time now);

}  // namespace sheaf
