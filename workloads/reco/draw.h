// RecoDraw: what a client of `reco` uses in one round: the halves of its items, drawn from the round's seed and the
// client's number, and the negatives of each. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "workloads/reco/config.h"

namespace sheaf {

// A half of a client's items, followed by the negatives drawn for it.
struct RecoHalf {
  std::vector<int64_t> items;
  size_t num_positives = 0;
};

// What a client uses in one round.
struct RecoDraw {
  RecoHalf support;
  RecoHalf query;
  // All items of both, sorted and unique: the rows the client reads.
  std::vector<int64_t> rows;
};

RecoDraw DrawReco(std::span<const uint32_t> items, int client, const RecoConfig& config);

}  // namespace sheaf
