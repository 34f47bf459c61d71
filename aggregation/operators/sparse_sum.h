// `sparse_sum`, `sparse_sum_to_dense`, `slices_sum`, `coordinate_mean`, `client_mean` and the weighted two: one running
// sum per element of each coordinate that somebody touched.
//
//   contribution 1   rows 4, 1, 4         slots     coordinate  contributors  sums
//                         |  |  |    ->     0            4           1        v0 + v2
//                         v0 v1 v2          1            1           1        v1
//
// A coordinate gets a slot when it is first touched; slots are in order of arrival, reports and serialised states in
// order of coordinate. Rows of one contribution with the same coordinate are added and count once as a contributor (and
// their weight once). Identity: no slots. Merge: slot by slot. Cost: one hash lookup per row; memory O(touched
// coordinates).
#pragma once

#include <memory>

#include "aggregation/output_accumulator.h"

namespace sheaf {

std::unique_ptr<OutputAccumulator> MakeSparseSum(const OutputLayout& layout);

}  // namespace sheaf
