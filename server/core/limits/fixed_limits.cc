#include "server/core/limits/fixed_limits.h"

#include <limits>

#include "aggregation/output/output_layout.h"
#include "aggregation/wire/state_origin.h"
#include "aggregation/wire/tensor.h"

namespace sheaf {

std::span<const FixedLimit> FixedLimits() {
  static const FixedLimit kRows[] = {
      {"Elements of a dense output, or of the value at one coordinate or key", kDenseElementsMax, "INVALID_ARGUMENT"},
      {"Elements of a sparse output that is released dense", kDenseElementsMax, "INVALID_ARGUMENT"},
      {"Coordinates that the indices of a sparse output can address", std::numeric_limits<int64_t>::max(),
       "INVALID_ARGUMENT"},
      {"Dimensions of an output", kRankMax, "INVALID_ARGUMENT"},
      {"Characters of an output's name", kOutputNameCharactersMax, "INVALID_ARGUMENT"},
      {"Bytes of a string key", kKeyBytesMax, "REJECTED"},
      {"Clients that one partial aggregate combines", kClientsMax, "REJECTED"},
      {"Characters of the name of a population, job, computation, worker or token", kNameCharactersMax,
       "INVALID_ARGUMENT"},
      {"Characters of a `request_id` or `poll_id`", kRequestIdCharactersMax, "INVALID_ARGUMENT"},
      {"Seconds of `deadline`, `attempt_deadline` and `lease_duration`",
       static_cast<uint64_t>(absl::ToInt64Seconds(kRoundTimeMax)), "INVALID_ARGUMENT"},
      {"Value of `over_selection`", kOverSelectionMax, "INVALID_ARGUMENT"},
      {"Value of `straggler.factor` and `straggler.deadline_factor`", kStragglerFactorMax, "INVALID_ARGUMENT"},
      {"Value of `staleness.max`", kStalenessMax, "INVALID_ARGUMENT"},
      {"Value of `staleness.exponent`", kStalenessExponentMax, "INVALID_ARGUMENT"},
      {"Value of `priority`", kPriorityMax, "INVALID_ARGUMENT"},
      {"Populations of a token that is bound to some", kTokenPopulationsMax, "INVALID_ARGUMENT"},
      {"Characters of the certificate's name that a token stands for", kCertificateNameCharactersMax,
       "INVALID_ARGUMENT"},
      {"Dimensions of a tensor in a safetensors file", kRankMax, "INVALID_ARGUMENT"},
  };
  return kRows;
}

}  // namespace sheaf
