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

#include <span>
#include <string>
#include <vector>

#include "aggregation/output/operator.h"

namespace sheaf {

// Sheaf's own.
std::span<const Operator> Operators();
// Their symbols, in the order of the table.
std::vector<std::string> OperatorSymbols();

}  // namespace sheaf
