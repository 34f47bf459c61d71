// Swizzle: clogs the links of some processes one by one, and frees them one by one in another order, so that parts of
// the federation see each other come and go in every combination (after FoundationDB's "swizzle-clogging").
#pragma once

#include <vector>

#include "tests/simulation/faulty_transport.h"
#include "tests/simulation/weather.h"

namespace sheaf::simulation {

class Swizzle {
 public:
  // All outlive this.
  Swizzle(Weather& weather, std::vector<FaultyTransport*> links) : weather_(weather), links_(std::move(links)) {}

  // Once a second: perhaps it begins.
  void Strike();

 private:
  // In random order, each some time after the one before; returns when the last one is reached.
  absl::Time OneByOne(std::vector<FaultyTransport*> links, absl::Time start, void (FaultyTransport::*act)());

  Weather& weather_;
  const std::vector<FaultyTransport*> links_;
  // No other begins before.
  absl::Time end_ = absl::InfinitePast();
};

}  // namespace sheaf::simulation
