// WorkRates: how many tasks of each population were leased, and how many results were accepted, over the last half
// minute. For people who look at a queue; nothing is decided by it.
//
//   rates.CountLeases("default", 3, now);
//   double per_second = rates.LeasesPerSecond("default", now);
//
// Not thread-safe: the core's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "server/core/limits/rate_window.h"

namespace sheaf {

class WorkRates {
 public:
  void CountLeases(const std::string& population, int64_t count, absl::Time now) {
    rates_[population].leases.Add(now, count);
  }
  void CountCompletion(const std::string& population, absl::Time now) { rates_[population].completions.Add(now); }

  double LeasesPerSecond(const std::string& population, absl::Time now) const {
    const auto found = rates_.find(population);
    return found == rates_.end() ? 0 : found->second.leases.Rate(now);
  }
  double CompletionsPerSecond(const std::string& population, absl::Time now) const {
    const auto found = rates_.find(population);
    return found == rates_.end() ? 0 : found->second.completions.Rate(now);
  }

 private:
  struct Rates {
    RateWindow leases;
    RateWindow completions;
  };
  std::map<std::string, Rates> rates_;
};

}  // namespace sheaf
