// `sum`, `mean`, `weighted_mean`, `min`, `max`, `count`: one running value per element of a dense tensor.
//
// Identity: zeros (for `min` and `max`, the type's last value in the other direction). Merge: element-wise. Cost:
// O(elements) per contribution, read where they lie; CellBytes of state per element. The divisor (count or weight) is
// one number. A mean of no contributions is released as zeros.
#pragma once

#include <memory>

#include "aggregation/output/output_accumulator.h"

namespace sheaf {

std::unique_ptr<OutputAccumulator> MakeDenseAccumulator(const OutputLayout& layout);

}  // namespace sheaf
