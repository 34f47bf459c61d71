// ShuffledFor: a ParallelFor that runs the parts one after the other in an order that chance draws: what depends on the
// order shows, and shows again with the same seed.
//
//   ShuffledFor shuffled(seed);
//   const absl::StatusOr<AggregateRelease> release = std::move(sum).Release(shuffled);
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/parallel_for.h"
#include "base/random.h"

namespace sheaf {

class ShuffledFor final : public ParallelFor {
 public:
  // As if there were so many threads.
  explicit ShuffledFor(uint64_t seed, int num_threads = 2) : random_(seed), num_threads_(num_threads) {}

  void Run(int n, const std::function<void(int)>& body) override {
    std::vector<int> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.Below(i)]);
    for (const int part : order) body(part);
  }
  int num_threads() const override { return num_threads_; }

 private:
  SeededRandom random_;
  const int num_threads_;
};

}  // namespace sheaf
