#include "aggregation/cell_vector.h"

#include <algorithm>

#include "aggregation/exact/exact_sum.h"
#include "aggregation/extremum.h"
#include "aggregation/float_sum.h"
#include "aggregation/integer_sum.h"
#include "aggregation/nonzero_count.h"
#include "aggregation/operators.h"
#include "base/check.h"

namespace sheaf {
namespace {

template <bool kIsMax>
std::unique_ptr<CellVector> MakeExtremum(v1::DType dtype, ZeroedPool* pool) {
  switch (dtype) {
    case v1::FLOAT32:
      return std::make_unique<Extremum<float, kIsMax>>(pool);
    case v1::FLOAT64:
      return std::make_unique<Extremum<double, kIsMax>>(pool);
    case v1::INT32:
      return std::make_unique<Extremum<int32_t, kIsMax>>(pool);
    case v1::INT64:
      return std::make_unique<Extremum<int64_t, kIsMax>>(pool);
    default:
      return std::make_unique<Extremum<uint64_t, kIsMax>>(pool);
  }
}

std::unique_ptr<CellVector> MakeFloatSum(const CellType& type, const CellUse& use) {
  const bool is_narrow = type.dtype == v1::FLOAT32;
  if (type.numerics == v1::F32) {
    SHEAF_CHECK(is_narrow, "F32 holds no FLOAT64");
    return std::make_unique<FloatSum<float, float>>(use.pool);
  }
  if (type.numerics == v1::F64) {
    if (is_narrow) return std::make_unique<FloatSum<double, float>>(use.pool);
    return std::make_unique<FloatSum<double, double>>(use.pool);
  }
  if (use.is_scattered) return std::make_unique<ExactSum>(type.dtype, ExactSum::kOneBlock, use.pool);
  const int64_t block_size = std::clamp<int64_t>(use.size_hint.value_or(ExactBlock::kRunMax), 1, ExactBlock::kRunMax);
  return std::make_unique<ExactSum>(type.dtype, static_cast<int>(block_size));
}

}  // namespace

std::unique_ptr<CellVector> MakeCells(const CellType& type, const CellUse& use) {
  switch (type.reduction) {
    case Reduction::kMin:
      return MakeExtremum<false>(type.dtype, use.pool);
    case Reduction::kMax:
      return MakeExtremum<true>(type.dtype, use.pool);
    case Reduction::kCountNonzero:
      return std::make_unique<NonzeroCount>(type.dtype, use.pool);
    case Reduction::kSum:
      break;
  }
  switch (type.dtype) {
    case v1::INT32:
      return std::make_unique<IntegerSum<int32_t>>(use.pool);
    case v1::INT64:
      return std::make_unique<IntegerSum<int64_t>>(use.pool);
    case v1::UINT64:
      return std::make_unique<IntegerSum<uint64_t>>(use.pool);
    default:
      return MakeFloatSum(type, use);
  }
}

void CellVector::ToDivisors(int64_t, int64_t, ExactDivisorColumns&) const {
  SHEAF_CHECK(false, "only sums of floats are divided by");
}

int64_t CellBytes(const CellType& type) {
  const bool is_float = type.dtype == v1::FLOAT32 || type.dtype == v1::FLOAT64;
  if (type.reduction == Reduction::kCountNonzero) return 8;
  if (type.reduction != Reduction::kSum) return type.dtype == v1::FLOAT32 || type.dtype == v1::INT32 ? 4 : 8;
  if (!is_float) return 16;
  if (type.numerics == v1::F64) return 8;
  if (type.numerics == v1::F32) return 4;
  // One or two bins for FLOAT32; the 53 bits of FLOAT64 always lie in two.
  return 16;
}

v1::DType ReleasedDType(Reduction reduction, v1::DType dtype) {
  return reduction == Reduction::kCountNonzero ? v1::INT64 : dtype;
}

}  // namespace sheaf
