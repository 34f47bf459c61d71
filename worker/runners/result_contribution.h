// What an executable returned, as a contribution.
//
//   ASSIGN_OR_RETURN(const ResultMetrics metrics, ParseResultMetrics(R"({"weight": 3, "loss": 0.5})"));
//   ASSIGN_OR_RETURN(v1::Contribution contribution, ContributionOf(std::move(tensors), metrics, lease.aggregate()));
//
// Here tensors find the outputs that they are for; whether an output takes them is for a ContributionValidator to say.
// Functions of values: thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/wire/tensor.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

struct ResultMetrics {
  // 0: nothing was said.
  double weight = 0;
  std::map<std::string, double> others;
};

// INVALID_ARGUMENT unless `text` is an object of finite numbers, with a weight above 0 if it has one.
absl::StatusOr<ResultMetrics> ParseResultMetrics(std::string_view text);

// Takes the tensors' bytes. INVALID_ARGUMENT, with a kind for RefusalOf, if an output has no value, or a tensor belongs
// to none; names it.
absl::StatusOr<v1::Contribution> ContributionOf(std::vector<NamedTensor> tensors, const ResultMetrics& metrics,
                                                const v1::AggregateSpec& aggregate);

}  // namespace sheaf
