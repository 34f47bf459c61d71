#include "aggregation/sum_vector.h"

#include <algorithm>

#include "aggregation/exact_sum.h"
#include "aggregation/integer_sum.h"

namespace sheaf {

std::unique_ptr<SumVector> MakeSumVector(v1::DType dtype, std::optional<int64_t> element_hint) {
  if (dtype != v1::FLOAT32 && dtype != v1::FLOAT64) return std::make_unique<IntegerSum>(dtype);
  const int64_t block_size = std::clamp<int64_t>(element_hint.value_or(ExactBlock::kSizeMax), 1, ExactBlock::kSizeMax);
  return std::make_unique<ExactSum>(dtype, static_cast<int>(block_size));
}

}  // namespace sheaf
