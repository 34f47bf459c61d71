// Explain: why a round is not done yet, or how it ended, in sentences.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/core_context.h"
#include "server/core/round_manager.h"
#include "server/core/worker_registry.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {

// NOT_FOUND. Reads only.
absl::StatusOr<v1::ExplainRoundResponse> ExplainRound(const RoundId& id, CoreContext& context, RoundManager& rounds,
                                                      const WorkerRegistry& workers, absl::Time now);

// Queued tasks of live rounds that no worker heard of lately can run.
absl::StatusOr<int64_t> CountUnschedulable(const std::string& population, CoreContext& context, RoundManager& rounds,
                                           const WorkerRegistry& workers, absl::Time now);

}  // namespace sheaf
