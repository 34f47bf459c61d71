// WeightSum: the exact sum of the float32 weights of all contributions, for the divisor of weighted operators. Exact
// under any numerics: it is one number.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "aggregation/cells/exact_sum.h"
#include "base/status_macros.h"

namespace sheaf {

// More than so many clients can weigh together, also where sums are rounded. A worker's state with more is refused, so
// that what states add up to is a number, which is what checkpoints are held to.
inline double WeightMax(int64_t num_clients) {
  return 2.0 * std::numeric_limits<float>::max() * static_cast<double>(num_clients);
}

class WeightSum {
 public:
  WeightSum() : sum_(v1::FLOAT64, 1) { sum_.Resize(1); }

  void Add(float weight) {
    const double wide = weight;
    sum_.Add(0, reinterpret_cast<const char*>(&wide), 1, 1.0f);
  }
  void Merge(const WeightSum& other) { sum_.AddFrom(0, other.sum_, 0, 1); }
  void Write(StateWriter& out) const { sum_.WriteChunk(0, 1, out); }
  // DATA_LOSS unless it is what so many clients can weigh, and positive exactly if there is anybody to have weight.
  absl::Status Read(StateReader& in, StateOrigin origin) {
    RETURN_IF_ERROR(sum_.ReadChunk(0, 1, in, origin));
    const double sum = value();
    const bool is_legal = origin.num_clients > 0 ? sum > 0 && sum <= WeightMax(origin.num_clients) : sum == 0;
    return is_legal ? absl::OkStatus() : absl::DataLossError("the state's sum of weights is malformed");
  }
  // What weighted sums are divided by.
  ExactDivisor divisor() const {
    ExactDivisorColumns divisors;
    sum_.ToDivisors(0, 1, divisors);
    return ExactDivisors(divisors).At(0);
  }
  double value() const {
    double sum = 0;
    sum_.Round(0, 1, {}, reinterpret_cast<char*>(&sum));
    return sum;
  }

 private:
  ExactSum sum_;
};

}  // namespace sheaf
