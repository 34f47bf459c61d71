// Checks one contribution's value of one output against the output's layout, and works out its linear coordinates.
//
//   std::vector<int64_t> keys;
//   RETURN_IF_ERROR(CheckSparse(layout, tensor, keys));
//
// Errors are INVALID_ARGUMENT (RESOURCE_EXHAUSTED over nnz_max) and name the output and the position.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "aggregation/exact/float_range.h"
#include "aggregation/output/output_layout.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

// Of FLOAT32 that is summed EXACT it also tells what each ExactBlock::kRunMax values in turn span: they are all looked
// at anyway.
absl::Status CheckDense(const OutputLayout& layout, const v1::Tensor& tensor, std::vector<FloatRange>& ranges);
// One key per row, in the order of the rows.
absl::Status CheckSparse(const OutputLayout& layout, const v1::SparseTensor& tensor, std::vector<int64_t>& keys);
// One key per row for INT64_KEYS; none for STRING_KEYS.
absl::Status CheckKeyed(const OutputLayout& layout, const v1::KeyedTable& table, std::vector<int64_t>& keys);

}  // namespace sheaf
