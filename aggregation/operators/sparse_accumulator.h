// `sparse_sum`, `sparse_sum_to_dense`, `slices_sum`, `coordinate_mean`, `client_mean`, the weighted two, `sparse_min`
// and `sparse_max`: one running value per element of each coordinate that somebody touched.
//
//   contribution 1   rows 4, 1, 4         coordinate  contributors  values
//                         |  |  |    ->        1           1        v1
//                         v0 v1 v2             4           1        v0 + v2
//
// Rows of one contribution with the same coordinate are combined and count once as a contributor (and their weight
// once); contributors are counted only where the divisor or min_contributors asks for it. Identity: nothing touched.
// Merge: coordinate by coordinate. How the values are kept is SparseStore's affair; reports and serialised states are
// in order of coordinate. Memory O(touched coordinates).
#pragma once

#include <memory>

#include "aggregation/output/output_accumulator.h"

namespace sheaf {

std::unique_ptr<OutputAccumulator> MakeSparseAccumulator(const OutputLayout& layout);

}  // namespace sheaf
