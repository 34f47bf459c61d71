// OffersBelow: what the workers of the server below can run together, which is what a relay offers to the server above.
//
//   OffersBelow offers(below, {.population = "wards"});
//   RETURN_IF_ERROR(offers.Look());                                  // Blocks. Every few seconds.
//   for (const v1::OfferedComputation& offer : offers.newest()) LogInfo("{}", offer.name());
//
// Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "sdk/cpp/client/transport.h"
#include "sheaf/v1/computation.pb.h"

namespace sheaf {

class OffersBelow {
 public:
  struct Filter {
    std::string population;
    // Names; empty: all.
    std::vector<std::string> allow;
  };
  // `below` outlives this.
  OffersBelow(Transport& below, Filter filter) : below_(below), filter_(std::move(filter)) {}

  // Asks for the workers: of the first ten thousand, those that are in service. As long as they cannot be asked for,
  // there is nothing to offer. FAILED_PRECONDITION if the server is older than 0.2.
  absl::Status Look() EXCLUDES(mutex_);
  // Nothing, until it has looked again.
  void Withdraw() EXCLUDES(mutex_);
  // By name, each with the highest version that a worker understands.
  std::vector<v1::OfferedComputation> newest() const EXCLUDES(mutex_);

 private:
  absl::StatusOr<std::vector<v1::OfferedComputation>> Ask() const;

  Transport& below_;
  const Filter filter_;
  mutable Mutex mutex_;
  std::vector<v1::OfferedComputation> newest_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
