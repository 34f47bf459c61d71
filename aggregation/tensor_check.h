// Checks one contribution's value of one output against the output's layout, and works out its linear coordinates.
//
//   RawVector<int64_t> keys;
//   RETURN_IF_ERROR(CheckSparse(layout, tensor, parallel, keys));
//
// Large ones are shared out in parts of about 1 MiB. Errors are INVALID_ARGUMENT (RESOURCE_EXHAUSTED over nnz_max) and
// name the output and the first position, however many threads there are.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "aggregation/exact/float_range.h"
#include "aggregation/memory/raw_vector.h"
#include "aggregation/output/output_layout.h"
#include "base/parallel_for.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

// Of FLOAT32 that is summed EXACT it also tells what each ExactBlock::kRunMax values in turn span: they are all looked
// at anyway.
absl::Status CheckDense(const OutputLayout& layout, const v1::Tensor& tensor, ParallelFor& parallel,
                        std::vector<FloatRange>& ranges);
// One key per row, in the order of the rows.
absl::Status CheckSparse(const OutputLayout& layout, const v1::SparseTensor& tensor, ParallelFor& parallel,
                         RawVector<int64_t>& keys);
// One key per row for INT64_KEYS; none for STRING_KEYS.
absl::Status CheckKeyed(const OutputLayout& layout, const v1::KeyedTable& table, ParallelFor& parallel,
                        RawVector<int64_t>& keys);

}  // namespace sheaf
