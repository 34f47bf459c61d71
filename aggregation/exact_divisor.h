// ExactDivisor: what a sum is divided by, without any rounding: a number of clients, or a sum of weights.
//
//   const ExactDivisor divisor = ExactDivisor::OfCount(3);
//   sums.Round(0, n, {&divisor, 1}, bytes);
//
// Two doubles hold nearly every such number whole; `whole` says where the rest is of those that they do not. A value
// type that points into the sum of weights: as long as that lives and does not change.
#pragma once

#include <cstdint>

namespace sheaf {

class ExactBlock;

struct ExactDivisor {
  // The nearest double; > 0.
  double upper = 1;
  // The double that is nearest to what is left.
  double lower = 0;
  // The cell that holds the number, if upper + lower is not all of it; else null.
  const ExactBlock* whole = nullptr;
  int cell = 0;

  // 0 < count <= 2^62.
  static ExactDivisor OfCount(int64_t count) {
    const double upper = static_cast<double>(count);
    return {.upper = upper, .lower = static_cast<double>(count - static_cast<int64_t>(upper)), .whole = nullptr};
  }
};

}  // namespace sheaf
