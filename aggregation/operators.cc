#include "aggregation/operators.h"

#include "aggregation/operators/dense_accumulator.h"
#include "aggregation/operators/keyed_accumulator.h"
#include "aggregation/operators/sparse_accumulator.h"

namespace sheaf {
namespace {

using enum Divisor;
using enum Operand;
using enum Reduction;

// clang-format off
constexpr Operator kOperators[] = {
    // symbol                      operand  reduces divisor          dense  index dims  create
    {"sum",                        kDense,  kSum,   kNone,           true,  kAllDims,   MakeDenseAccumulator,
     "element by element, the sum of all contributions"},
    {"mean",                       kDense,  kSum,   kCount,          true,  kAllDims,   MakeDenseAccumulator,
     "element by element, the sum divided by the number of contributions"},
    {"weighted_mean",              kDense,  kSum,   kWeight,         true,  kAllDims,   MakeDenseAccumulator,
     "element by element, the sum of weight * value divided by the sum of weights"},
    {"min",                        kDense,  kMin,   kNone,           true,  kAllDims,   MakeDenseAccumulator,
     "element by element, the smallest value"},
    {"max",                        kDense,  kMax,   kNone,           true,  kAllDims,   MakeDenseAccumulator,
     "element by element, the largest value"},
    {"count",                      kDense,  kCountNonzero, kNone,     true,  kAllDims,    MakeDenseAccumulator,
     "element by element, how many clients' values are not zero; released as INT64"},
    {"sparse_sum",                 kSparse, kSum,   kNone,           false, kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the sum of all entries there; released sparse"},
    {"sparse_sum_to_dense",        kSparse, kSum,   kNone,           true,  kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the sum of all entries there; released dense"},
    {"slices_sum",                 kSparse, kSum,   kNone,           false, 1,          MakeSparseAccumulator,
     "at each row, the sum of all row slices there; released sparse"},
    {"coordinate_mean",            kSparse, kSum,   kTouchingCount,  false, kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the sum divided by the number of contributions that touched it"},
    {"weighted_coordinate_mean",   kSparse, kSum,   kTouchingWeight, false, kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the sum of weight * value divided by the weight of the contributions that touched it"},
    {"client_mean",                kSparse, kSum,   kCount,          false, kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the sum divided by the number of all contributions: absent counts as zero"},
    {"weighted_client_mean",       kSparse, kSum,   kWeight,         false, kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the sum of weight * value divided by the weight of all contributions: absent counts as zero"},
    {"sparse_min",                 kSparse, kMin,   kNone,           false, kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the smallest entry of those that touched it: absent is not zero"},
    {"sparse_max",                 kSparse, kMax,   kNone,           false, kAllDims,   MakeSparseAccumulator,
     "at each coordinate, the largest entry of those that touched it: absent is not zero"},
    {"keyed_sum",                  kKeyed,  kSum,   kNone,           false, kAllDims,   MakeKeyedAccumulator,
     "at each key of an open set, the sum of all rows there; released as a table sorted by key"},
};
// clang-format on

}  // namespace

std::span<const Operator> Operators() { return kOperators; }

std::vector<std::string> OperatorSymbols() {
  std::vector<std::string> symbols;
  for (const Operator& op : kOperators) symbols.emplace_back(op.symbol);
  return symbols;
}

}  // namespace sheaf
