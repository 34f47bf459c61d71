// `sum`, `mean`, `weighted_mean`: one running sum per element of a dense tensor.
//
// Identity: zeros. Merge: element-wise addition. Cost: O(elements) per contribution, two or three 8-byte digits per
// float32 element of state. The divisor (count or weight) is one number. A mean of no contributions is released as
// zeros.
#pragma once

#include <memory>

#include "aggregation/output_accumulator.h"

namespace sheaf {

std::unique_ptr<OutputAccumulator> MakeDenseSum(const OutputLayout& layout);

}  // namespace sheaf
