// What a round released, checked against the model it is for. For programs, in Apply.
//
//   ASSIGN_OR_RETURN(ReleasedRows rows, ReadReleasedRows(aggregate, "rows", {.num_rows = n, .width = width}));
//   RETURN_IF_ERROR(optimizer.MoveRows("w", rows.indices, rows.values, width, weights));
//
// Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregation/wire/safetensors.h"

namespace sheaf {

// A row-sparse float32 output: sorted, unique, each in [0, num_rows).
struct ReleasedRows {
  std::vector<int64_t> indices;
  // [indices, width].
  std::vector<float> values;
};

// Of the model that the rows are for.
struct RowsShape {
  int64_t num_rows = 0;
  int64_t width = 0;
};

// NOT_FOUND if the output was not released; INTERNAL if it is not of this type and shape, or has a row the model lacks.
absl::StatusOr<ReleasedRows> ReadReleasedRows(const SafetensorsView& aggregate, std::string_view output,
                                              const RowsShape& model);

// A dense float32 output of one dimension. Errors as above.
absl::StatusOr<std::vector<float>> ReadReleasedVector(const SafetensorsView& aggregate, std::string_view output,
                                                      int64_t size);

}  // namespace sheaf
