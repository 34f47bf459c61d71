// ReferenceAggregate: the oracle. What a round must release, worked out the slow and obvious way.
//
//   ASSIGN_OR_RETURN(AggregateReport expected, ReferenceAggregate(spec, contributions));
//
// It shares the checks of contributions with RoundAccumulator and nothing of its arithmetic: coordinates are kept as
// tuples in a std::map, values are gathered one element at a time and added in a fixed-point number of 2624 bits that
// covers every product of a double and a float; integers are added in 128 bits. Memory is O(contributions). Tests and
// `sheaf demo tags --verify` compare its tensors with those of RoundAccumulator byte for byte.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "aggregation/output/release.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// Errors as LayoutsOf, ContributionValidator::Validate and RoundAccumulator::Report; and INVALID_ARGUMENT for partial
// aggregates, whose values it cannot see.
absl::StatusOr<AggregateReport> ReferenceAggregate(const v1::AggregateSpec& spec,
                                                   std::span<const v1::Contribution> contributions);

}  // namespace sheaf
