// What FloatSum and FloatRows do with runs of numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "aggregation/exact/exact_divisor.h"

namespace sheaf {

template <typename T>
T LoadAt(const char* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * static_cast<int64_t>(sizeof value), sizeof value);
  return value;
}

// Every NaN is the same one: states are compared as bytes.
template <typename T>
T CanonicalNan(T value) {
  return std::isnan(value) ? std::numeric_limits<T>::quiet_NaN() : value;
}

// sums[i] += weight * values[i], in Cell's precision.
template <typename Cell, typename Value>
void AddNumbers(const char* __restrict values, int64_t n, float weight, Cell* __restrict sums) {
  if (weight == 1) {
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<Cell>(LoadAt<Value>(values, i));
  } else {
    for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<Cell>(LoadAt<Value>(values, i)) * static_cast<Cell>(weight);
  }
}

// sums[i] = 0 + weight * values[i]: what AddNumbers makes of zeros.
template <typename Cell, typename Value>
void SetNumbers(const char* __restrict values, int64_t n, float weight, Cell* __restrict sums) {
  if (weight == 1) {
    for (int64_t i = 0; i < n; ++i) sums[i] = Cell{0} + static_cast<Cell>(LoadAt<Value>(values, i));
  } else {
    for (int64_t i = 0; i < n; ++i) {
      sums[i] = Cell{0} + static_cast<Cell>(LoadAt<Value>(values, i)) * static_cast<Cell>(weight);
    }
  }
}

// rounded[i] = 0 + sums[i], divided in double. `divisors` are none, one, or one each.
template <typename Value, typename Cell>
void RoundNumbers(const Cell* __restrict sums, int64_t n, const ExactDivisors& divisors, Value* __restrict rounded) {
  if (divisors.empty()) {
    for (int64_t i = 0; i < n; ++i) rounded[i] = static_cast<Value>(Cell{0} + sums[i]);
  } else if (divisors.is_one()) {
    const double divisor = divisors.upper()[0];
    for (int64_t i = 0; i < n; ++i) rounded[i] = static_cast<Value>((0.0 + static_cast<double>(sums[i])) / divisor);
  } else {
    const double* const each = divisors.upper().data();
    for (int64_t i = 0; i < n; ++i) rounded[i] = static_cast<Value>((0.0 + static_cast<double>(sums[i])) / each[i]);
  }
  for (int64_t i = 0; i < n; ++i) {
    rounded[i] = rounded[i] == rounded[i] ? rounded[i] : std::numeric_limits<Value>::quiet_NaN();
  }
}

}  // namespace sheaf
