// CellType: what a cell keeps of the values it takes in.
//
//   const CellType type{.reduction = Reduction::kSum, .dtype = v1::FLOAT32, .numerics = v1::EXACT};
//   const int64_t bytes = 1000 * CellBytes(type);
#pragma once

#include <cstdint>

#include "sheaf/v1/aggregation.pb.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

// How the values at one element combine.
enum class Reduction {
  // weight * value is added; the weight is 1 unless the operator is weighted.
  kSum,
  // The smallest or largest value stays. -0 counts as +0; any NaN stays NaN.
  kMin,
  kMax,
  // How many clients' values are not zero, as INT64. NaN is not zero.
  kCountNonzero,
};

struct CellType {
  Reduction reduction;
  // Of the values that come.
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  v1::Numerics numerics = v1::EXACT;

  // The dtype that is released.
  v1::DType released_dtype() const { return reduction == Reduction::kCountNonzero ? v1::INT64 : dtype; }
};

// What a cell takes in the usual case; for estimates.
int64_t CellBytes(const CellType& type);

}  // namespace sheaf
