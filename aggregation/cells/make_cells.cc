#include "aggregation/cells/make_cells.h"

#include <algorithm>

#include "aggregation/cells/exact_rows.h"
#include "aggregation/cells/exact_sum.h"
#include "aggregation/cells/extremum.h"
#include "aggregation/cells/float_rows.h"
#include "aggregation/cells/float_sum.h"
#include "aggregation/cells/integer_sum.h"
#include "aggregation/cells/nonzero_count.h"
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

// Narrower rows share their bins with their neighbours, and what is kept for each row would be as much as its cells;
// wider ones take so long by themselves that how they are found does not matter.
constexpr int64_t kRowWidthMin = 16;
constexpr int64_t kRowWidthMax = ExactBlock::kRunMax;

std::unique_ptr<CellVector> MakeFloatRows(const CellType& type, int width) {
  const bool is_narrow = type.dtype == v1::FLOAT32;
  if (type.numerics == v1::F32) {
    SHEAF_CHECK(is_narrow, "F32 holds no FLOAT64");
    return std::make_unique<FloatRows<float, float>>(width);
  }
  if (type.numerics == v1::F64) {
    if (is_narrow) return std::make_unique<FloatRows<double, float>>(width);
    return std::make_unique<FloatRows<double, double>>(width);
  }
  return std::make_unique<ExactRows>(type.dtype, width);
}

std::unique_ptr<CellVector> MakeFloatSum(const CellType& type, const CellUse& use) {
  const bool is_narrow = type.dtype == v1::FLOAT32;
  if (!use.is_scattered && kRowWidthMin <= use.row_width && use.row_width <= kRowWidthMax) {
    return MakeFloatRows(type, static_cast<int>(use.row_width));
  }
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

}  // namespace sheaf
