// The operators: one table, one row per operator. This table is what the word "operator" means in Sheaf.
//
// An operator is a small algebra over contributions c with values v (sparse ones touch some coordinates x only):
//   identity    the accumulator of no contributions
//   accumulate  folds one contribution in
//   merge       combines two accumulators; associative, commutative, with the identity
//   write/read  to canonical bytes and back
//   report      the released tensors
// and to fold contributions in any order, in any groups, through any bytes, gives the same bits (under EXACT numerics,
// and for integers, minima, maxima and counts under any). The conformance suite in tests/conformance checks every row.
//
// To add an operator: write aggregation/operators/<name>.{h,cc} and one row. Nothing registers itself. To try one
// outside this tree, hand a table of your own to RoundAccumulator::Create; see docs/guides/write-an-operator.md.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "aggregation/output_accumulator.h"
#include "aggregation/output_layout.h"

namespace sheaf {

// What a contribution carries for an output, and what the output releases.
enum class Operand {
  // A Tensor of the whole dense shape.
  kDense,
  // A SparseTensor.
  kSparse,
  // A KeyedTable.
  kKeyed,
};

// How the values at one element combine.
enum class Reduction {
  // weight * value is added; the weight is 1 unless the operator is weighted.
  kSum,
  // The smallest or largest value stays. -0 counts as +0; any NaN stays NaN.
  kMin,
  kMax,
  // How many clients' values are not zero, as INT64. NaN is not zero.
  kCountNonzero,
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

// Sheaf's own.
std::span<const Operator> Operators();
// Null if there is none in `table`.
const Operator* FindOperator(std::span<const Operator> table, std::string_view symbol);
// In the words of OutputSummary.divisor.
std::string_view DivisorText(Divisor divisor);

}  // namespace sheaf
