// Checks a whole contribution against the outputs of a round; changes nothing but what it hands back.
//
//   CheckedContribution checked;
//   checked.contribution = std::move(contribution);
//   RETURN_IF_ERROR(CheckContribution(layouts, parallel, checked));
//
// A contribution carries values for all outputs (one client's) or states for all (a partial aggregate of several).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "aggregation/memory/raw_vector.h"
#include "aggregation/output/checked_value.h"
#include "aggregation/output/output_accumulator.h"
#include "aggregation/output/output_layout.h"
#include "base/parallel_for.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

struct CheckedOutput {
  // Points into the contribution, `keys` and `ranges`.
  CheckedValue value;
  RawVector<int64_t> keys;
  std::vector<FloatRange> ranges;
  // Set in a partial aggregate, instead of the value.
  std::unique_ptr<OutputAccumulator> partial;
};

// Stays where it was checked: its parts point at each other.
struct CheckedContribution {
  CheckedContribution() = default;
  CheckedContribution(const CheckedContribution&) = delete;
  CheckedContribution& operator=(const CheckedContribution&) = delete;

  v1::Contribution contribution;
  // One per output, in the order of the spec.
  std::vector<CheckedOutput> outputs;
  int64_t num_clients = 1;
};

// Fills in `outputs` and `num_clients` from `contribution`. INVALID_ARGUMENT naming the output and the position;
// RESOURCE_EXHAUSTED over a limit, naming it.
absl::Status CheckContribution(std::span<const OutputLayout> layouts, ParallelFor& parallel,
                               CheckedContribution& checked);

}  // namespace sheaf
