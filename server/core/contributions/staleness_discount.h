// The discount by staleness: what a contribution loses of its weight because its task was carried into later rounds, so
// that it was computed from an older broadcast than theirs.
//
//   DiscountStale(round.spec.staleness(), task.staleness, valid);
//
// The polynomial is that of Xie, Koyejo and Gupta, Asynchronous Federated Optimization, 2019; with exponent 0.5 it is
// FedBuff's (Nguyen et al., Federated Learning with Buffered Asynchronous Aggregation, AISTATS 2022).
#pragma once

#include <cstdint>

#include "aggregation/contribution_validator.h"
#include "sheaf/v1/round.pb.h"

namespace sheaf {

// s(staleness) = (1 + staleness)^-exponent under POLYNOMIAL, rounded to FLOAT32; else 1. `staleness` is a number of
// rounds, at least 0.
float StalenessDiscount(const v1::StalenessPolicy& policy, int32_t staleness);

// Multiplies the weight of `valid` by it. A partial aggregate's is 1.
void DiscountStale(const v1::StalenessPolicy& policy, int32_t staleness, ValidContribution& valid);

}  // namespace sheaf
