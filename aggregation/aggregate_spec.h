// What the spec of a round's aggregate says, checked and worked out.
//
//   RETURN_IF_ERROR(ValidateAggregateSpec(spec));
//   ASSIGN_OR_RETURN(const std::vector<OutputLayout> layouts, LayoutsOf(spec, operators));
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregation/output/operator.h"
#include "aggregation/output/output_layout.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// One layout per output, in the order of the spec; they point into `operators`. INVALID_ARGUMENT unless every output
// names one of the operators, has a name, dtype and shape this operator takes, and modifiers that mean something there;
// it names the output, the operator and the reason, and an unknown operator's message lists those that exist.
absl::StatusOr<std::vector<OutputLayout>> LayoutsOf(const v1::AggregateSpec& spec, std::span<const Operator> operators);

// OK if LayoutsOf, with Sheaf's operators, is.
absl::Status ValidateAggregateSpec(const v1::AggregateSpec& spec);

// Memory that the state of each output takes before anybody contributes, in the usual case, in bytes: of dense results.
// What sparse and keyed outputs will take depends on what comes. `spec` is valid.
std::vector<int64_t> EstimateStateBytes(const v1::AggregateSpec& spec);

}  // namespace sheaf
