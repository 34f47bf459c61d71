// Operator: a row of the table of operators. Sheaf's own table is Operators(), in aggregation/operators.h.
//
//   const Operator* const mean = FindOperator(table, "mean");
//   const std::unique_ptr<OutputAccumulator> sums = mean->create(layout);
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "aggregation/cells/cell_type.h"

namespace sheaf {

class OutputAccumulator;
struct OutputLayout;

// What a contribution carries for an output, and what the output releases.
enum class Operand {
  // A Tensor of the whole dense shape.
  kDense,
  // A SparseTensor.
  kSparse,
  // A KeyedTable.
  kKeyed,
};

// What each released value was divided by.
enum class Divisor {
  kNone,
  // Contributions that touched the coordinate; all contributions. Partial aggregates count their clients.
  kTouchingCount,
  kCount,
  // The same, of weights.
  kTouchingWeight,
  kWeight,
};

// index_dims: the indices address every dimension.
inline constexpr int kAllDims = 0;

struct Operator {
  std::string_view symbol;
  Operand operand;
  Reduction reduction;
  Divisor divisor;
  // A sparse operator that releases one dense tensor under the output's own name unless the spec says otherwise.
  bool releases_dense;
  int default_index_dims;
  // The identity. `layout` is of this operator.
  std::unique_ptr<OutputAccumulator> (*create)(const OutputLayout& layout);
  std::string_view meaning;

  bool is_weighted() const { return divisor == Divisor::kTouchingWeight || divisor == Divisor::kWeight; }
  // All take FLOAT32 and FLOAT64; these take INT32, INT64 and UINT64 as well.
  bool takes_integers() const { return divisor == Divisor::kNone; }
};

// Null if there is none in `table`.
const Operator* FindOperator(std::span<const Operator> table, std::string_view symbol);
// In the words of OutputSummary.divisor.
std::string_view DivisorText(Divisor divisor);

}  // namespace sheaf
