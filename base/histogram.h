// Histogram: how values are distributed, by buckets whose bounds were chosen before. For whoever looks on; nothing is
// decided by it.
//
//   Histogram took(kDurationBounds);
//   took.Observe(absl::ToDoubleSeconds(absl::Milliseconds(3)));
//   const std::vector<Histogram::Bucket> buckets = took.Read().buckets;   // {0.00001, 0}, ... {0.005, 1}, ...
//
// An observation costs three relaxed atomic operations and a search among some 20 bounds. What Read gives may miss
// observations that are being made; its count is always the sum of its buckets. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"

namespace sheaf {

// Seconds: of work in this process and on its disk.
inline constexpr double kDurationBounds[] = {0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001,
                                             0.0025,  0.005,    0.01,    0.025,  0.05,    0.1,    0.25,
                                             0.5,     1,        2.5,     5,      10,      30,     60};
// Seconds: of what people wait for.
inline constexpr double kWaitBounds[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1,    2.5,  5,
                                         10,    30,    60,   120,  300, 900, 1800, 3600, 14'400};
// How many.
inline constexpr double kCountBounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
inline constexpr double kByteBounds[] = {1 << 10, 4 << 10,  16 << 10, 64 << 10,  256 << 10, 1 << 20,
                                         4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30};

class Histogram {
 public:
  static constexpr size_t kBoundsMax = 24;

  // Ascending; they outlive this. A value is in the first bucket whose bound is not below it.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds) {
    SHEAF_CHECK(!bounds.empty() && bounds.size() <= kBoundsMax, "a histogram of {} buckets", bounds.size());
    for (size_t i = 1; i < bounds.size(); ++i) SHEAF_CHECK(bounds[i - 1] < bounds[i], "bounds do not ascend");
  }

  void Observe(double value) {
    counts_[PlaceOf(value)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  // The same for each of them, at the price of few.
  void ObserveAll(std::span<const double> values) {
    std::array<uint64_t, kBoundsMax + 1> counts = {};
    double sum = 0;
    for (const double value : values) {
      ++counts[PlaceOf(value)];
      sum += value;
    }
    for (size_t i = 0; i <= bounds_.size(); ++i) {
      if (counts[i] > 0) counts_[i].fetch_add(counts[i], std::memory_order_relaxed);
    }
    if (!values.empty()) sum_.fetch_add(sum, std::memory_order_relaxed);
  }

  struct Bucket {
    double bound = 0;
    // Of values up to the bound.
    uint64_t count = 0;
  };
  struct State {
    // The last one is infinite, and has all.
    std::vector<Bucket> buckets;
    double sum = 0;
  };
  State Read() const {
    State state;
    state.buckets.reserve(bounds_.size() + 1);
    uint64_t count = 0;
    for (size_t i = 0; i <= bounds_.size(); ++i) {
      count += counts_[i].load(std::memory_order_relaxed);
      state.buckets.push_back({i < bounds_.size() ? bounds_[i] : std::numeric_limits<double>::infinity(), count});
    }
    state.sum = sum_.load(std::memory_order_relaxed);
    return state;
  }
  std::span<const double> bounds() const { return bounds_; }

 private:
  size_t PlaceOf(double value) const {
    size_t place = 0;
    while (place < bounds_.size() && value > bounds_[place]) ++place;
    return place;
  }

  const std::span<const double> bounds_;
  std::array<std::atomic<uint64_t>, kBoundsMax + 1> counts_ = {};
  std::atomic<double> sum_ = 0;
};

}  // namespace sheaf
