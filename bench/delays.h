// What people wait for, of a server that runs already: in milliseconds, each sample.
//
//   ASSIGN_OR_RETURN(std::vector<double> millis, DeliveryMillis(setup, server->address(), 64));
//   fmt::print("p99 {}\n", Quantile(millis, 0.99));
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/bench.h"

namespace sheaf::bench {

inline constexpr int kDeliverySamples = 300;

// From the call that creates a task until one of `num_workers`, whose polls are parked, has it.
absl::StatusOr<std::vector<double>> DeliveryMillis(const Setup& setup, const std::string& address, int num_workers);

// From the call that creates a round of so many tasks that compute nothing until its aggregate is read.
absl::StatusOr<std::vector<double>> RoundMillis(const Setup& setup, const std::string& address, int num_workers);

}  // namespace sheaf::bench
