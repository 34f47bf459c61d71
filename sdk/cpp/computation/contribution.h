// What a computation returns, of float32 tensors. A program reads what becomes of it with
// sdk/cpp/program/released_rows.h.
//
//   v1::Contribution contribution;
//   AddRows("rows", {num_features, num_labels}, rows, deltas, contribution);
//   AddDense("bias", {num_labels}, bias_delta, contribution);
//   contribution.set_weight(num_examples);
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "sheaf/v1/aggregation.pb.h"

namespace sheaf {

// The value of a dense operator: as many elements as the shape has.
void AddDense(std::string_view output, const std::vector<int64_t>& shape, const std::vector<float>& values,
              v1::Contribution& contribution);

// The value of a sparse operator: some rows of a tensor of this shape. `rows` are unique, `values` has a row for each.
void AddRows(std::string_view output, const std::vector<int64_t>& shape, const std::vector<int64_t>& rows,
             const std::vector<float>& values, v1::Contribution& contribution);

}  // namespace sheaf
