// WeightSum: the exact sum of the float32 weights of all contributions, for the divisor of weighted operators. Exact
// under any numerics: it is one number.
#pragma once

#include <bit>

#include "aggregation/exact_sum.h"
#include "base/status_macros.h"

namespace sheaf {

class WeightSum {
 public:
  WeightSum() : sum_(v1::FLOAT64, 1) { sum_.Resize(1); }

  void Add(float weight) {
    const double wide = weight;
    sum_.Add(0, reinterpret_cast<const char*>(&wide), 1, 1.0f);
  }
  void Merge(const WeightSum& other) { sum_.AddFrom(0, other.sum_, 0, 1); }
  void Write(StateWriter& out) const { sum_.WriteChunk(1, out); }
  // DATA_LOSS unless it is finite, and positive exactly if there is anybody to have weight.
  absl::Status Read(StateReader& in, StateOrigin origin) {
    RETURN_IF_ERROR(sum_.ReadChunk(0, 1, in, origin));
    const bool is_legal = !sum_.has_non_finite() && (origin.num_clients > 0 ? value() > 0 : value() == 0);
    return is_legal ? absl::OkStatus() : absl::DataLossError("the state's sum of weights is malformed");
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
