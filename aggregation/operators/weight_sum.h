// WeightSum: the exact sum of the float32 weights of all contributions, for the divisor of weighted operators.
#pragma once

#include "aggregation/exact_sum.h"
#include "base/status_macros.h"

namespace sheaf {

class WeightSum {
 public:
  WeightSum() : sum_(v1::FLOAT32, 1) { sum_.Resize(1); }

  void Add(float weight) { sum_.Add(0, reinterpret_cast<const char*>(&weight), 1, 1.0f); }
  void Merge(const WeightSum& other) { sum_.AddFrom(0, other.sum_, 0, 1); }
  void Write(StateWriter& out) const {
    const ElementRun all{0, 1};
    sum_.Write({&all, 1}, out);
  }
  // DATA_LOSS unless it is finite, and positive exactly if there is anybody to have weight.
  absl::Status Read(StateReader& in, StateOrigin origin, bool has_clients) {
    RETURN_IF_ERROR(sum_.Read(in, origin));
    const bool is_legal = !sum_.has_non_finite() && (has_clients ? value() > 0 : value() == 0);
    return is_legal ? absl::OkStatus() : absl::DataLossError("the state's sum of weights is malformed");
  }
  double value() const { return sum_.RoundToDouble(0); }

 private:
  ExactSum sum_;
};

}  // namespace sheaf
