// Verification of a round by brute force: for programs that can compute every client's contribution themselves.
//
//   for (int client : clients) contributions.push_back(ContributionOf(client));
//   ASSIGN_OR_RETURN(Verification found, VerifyByBruteForce(plan.spec.aggregate(), contributions, aggregate));
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors.h"
#include "sdk/cpp/program/program.h"
#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// Combines the contributions with ReferenceAggregate and compares all released bits with it. Errors as of
// ReferenceAggregate. Thread-safe.
absl::StatusOr<Verification> VerifyByBruteForce(const v1::AggregateSpec& spec,
                                                std::span<const v1::Contribution> contributions,
                                                const SafetensorsView& aggregate);

}  // namespace sheaf
