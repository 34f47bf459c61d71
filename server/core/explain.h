// Explain: why a round is not done yet, or how it ended, in sentences.
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/core_context.h"
#include "server/core/round_manager.h"
#include "server/core/unmet_requirements.h"
#include "sheaf/v1/inspection_service.pb.h"

namespace sheaf {

// With what UnmetRequirements::OfRound found of it. NOT_FOUND. Reads only.
absl::StatusOr<v1::ExplainRoundResponse> ExplainRound(const RoundId& id, CoreContext& context, RoundManager& rounds,
                                                      const UnmetRequirements::Found& unmet, absl::Time now);

}  // namespace sheaf
