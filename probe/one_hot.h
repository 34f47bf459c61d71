// Rounds whose sum shows which contributions were counted: that of task i adds 1 to coordinate i of two outputs, a
// dense one ("counts", sum) and a sparse one ("touched", sparse_sum_to_dense).
//
//   *spec.mutable_aggregate() = OneHotAggregate(num_tasks);
//   result.set_contribution(OneHotContribution(num_tasks, index).SerializeAsString());
//   ASSIGN_OR_RETURN(std::vector<int64_t> counts, OneHotCounts(file));     // Of a round that succeeded.
//
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

v1::AggregateSpec OneHotAggregate(int64_t size);
// 0 <= index < size.
v1::Contribution OneHotContribution(int64_t size, int64_t index);
// Of the safetensors file that such a round released: what each coordinate holds. INTERNAL if the two outputs
// differ; else the codes of SafetensorsView.
absl::StatusOr<std::vector<int64_t>> OneHotCounts(std::string_view aggregate_file);

}  // namespace sheaf
