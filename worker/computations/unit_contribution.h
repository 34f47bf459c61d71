// Contributions made of zeros and ones, for any round.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// Zeros for every dense output, no coordinate of any sparse one; with `index`, 1 at that element of every dense output,
// and ones at that coordinate and at coordinate 0 of every sparse one. INVALID_ARGUMENT naming the output if the index
// is not in it, or if `spec` is wrong.
absl::StatusOr<v1::Contribution> UnitContribution(const v1::AggregateSpec& spec, std::optional<int64_t> index);

}  // namespace sheaf
