// Rounds whose sum shows which contributions were counted: that of task i adds 1 at element i of every output.
//
//   *spec.mutable_aggregate() = OneHotAggregate(num_tasks);
//   ASSIGN_OR_RETURN(v1::Contribution contribution, OneHotContribution(spec.aggregate(), i, OneHotForm::kAlone));
//   ASSIGN_OR_RETURN(std::vector<int64_t> counts, OneHotCounts(file, OneHotForm::kAlone));   // It SUCCEEDED.
//
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

enum class OneHotForm {
  // Element i, and nothing else.
  kAlone,
  // In sparse outputs coordinate 0 as well, where all contributions meet.
  kMeeting,
};

// Two outputs of so many INT64: a dense one ("counts", sum) and a sparse one ("touched", sparse_sum_to_dense).
v1::AggregateSpec OneHotAggregate(int64_t size);

// For any round: 1 at this element of every dense output, ones at this coordinate of every sparse one and at this key
// of every keyed one. INVALID_ARGUMENT naming the output if the index is not in it, or if `spec` is wrong.
absl::StatusOr<v1::Contribution> OneHotContribution(const v1::AggregateSpec& spec, int64_t index, OneHotForm form);
// Zeros for every dense output, nothing for the others.
absl::StatusOr<v1::Contribution> ZeroContribution(const v1::AggregateSpec& spec);

// Of the safetensors file that a round of OneHotAggregate released: what each coordinate holds. INTERNAL if the two
// outputs do not hold the same contributions; else the codes of SafetensorsView.
absl::StatusOr<std::vector<int64_t>> OneHotCounts(std::string_view aggregate_file, OneHotForm form);

}  // namespace sheaf
