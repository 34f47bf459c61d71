// The operators: one table, one row per operator. This table is what the word "operator" means in Sheaf.
//
// An operator is a small algebra over contributions c with values v (sparse ones touch some coordinates x only):
//   identity    the accumulator of no contributions
//   accumulate  folds one contribution in
//   merge       combines two accumulators; associative, commutative, with the identity
//   write/read  to canonical bytes and back
//   report      the released tensors
// and to fold contributions in any order, in any groups, through any bytes, gives the same bits. The conformance suite
// in tests/conformance checks every row.
//
// To add an operator: write aggregation/operators/<name>.{h,cc} and one row. Nothing registers itself.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "aggregation/output_accumulator.h"
#include "aggregation/output_layout.h"

namespace sheaf {

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
  // Takes SparseTensor values, and only those; otherwise Tensor values, and only those.
  bool is_sparse;
  // Releases one dense tensor under the output's own name, otherwise indices, values and dense_shape.
  bool releases_dense;
  // All take FLOAT32 and FLOAT64; these take INT32, INT64 and UINT64 as well.
  bool takes_integers;
  Divisor divisor;
  int default_index_dims;
  // The identity. `layout` is of this operator.
  std::unique_ptr<OutputAccumulator> (*create)(const OutputLayout& layout);
  std::string_view meaning;

  bool is_weighted() const { return divisor == Divisor::kTouchingWeight || divisor == Divisor::kWeight; }
};

std::span<const Operator> Operators();
// Null if there is none.
const Operator* FindOperator(std::string_view symbol);
// In the words of OutputSummary.divisor.
std::string_view DivisorText(Divisor divisor);

}  // namespace sheaf
