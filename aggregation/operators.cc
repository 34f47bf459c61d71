#include "aggregation/operators.h"

#include "aggregation/operators/dense_sum.h"
#include "aggregation/operators/sparse_sum.h"
#include "aggregation/round_accumulator.h"

namespace sheaf {
namespace {

using enum Divisor;

// clang-format off
constexpr Operator kOperators[] = {
    // symbol                      sparse dense  ints   divisor          index dims  create
    {"sum",                        false, true,  true,  kNone,           kAllDims,   MakeDenseSum,
     "element by element, the sum of all contributions"},
    {"mean",                       false, true,  false, kCount,          kAllDims,   MakeDenseSum,
     "element by element, the sum divided by the number of contributions"},
    {"weighted_mean",              false, true,  false, kWeight,         kAllDims,   MakeDenseSum,
     "element by element, the sum of weight * value divided by the sum of weights"},
    {"sparse_sum",                 true,  false, true,  kNone,           kAllDims,   MakeSparseSum,
     "at each coordinate, the sum of all entries there; released sparse"},
    {"sparse_sum_to_dense",        true,  true,  true,  kNone,           kAllDims,   MakeSparseSum,
     "at each coordinate, the sum of all entries there; released dense"},
    {"slices_sum",                 true,  false, true,  kNone,           1,          MakeSparseSum,
     "at each row, the sum of all row slices there; released sparse"},
    {"coordinate_mean",            true,  false, false, kTouchingCount,  kAllDims,   MakeSparseSum,
     "at each coordinate, the sum divided by the number of contributions that touched it"},
    {"weighted_coordinate_mean",   true,  false, false, kTouchingWeight, kAllDims,   MakeSparseSum,
     "at each coordinate, the sum of weight * value divided by the weight of the contributions that touched it"},
    {"client_mean",                true,  false, false, kCount,          kAllDims,   MakeSparseSum,
     "at each coordinate, the sum divided by the number of all contributions: absent counts as zero"},
    {"weighted_client_mean",       true,  false, false, kWeight,         kAllDims,   MakeSparseSum,
     "at each coordinate, the sum of weight * value divided by the weight of all contributions: absent counts as zero"},
};
// clang-format on

}  // namespace

std::span<const Operator> Operators() { return kOperators; }

const Operator* FindOperator(std::string_view symbol) {
  for (const Operator& op : kOperators) {
    if (op.symbol == symbol) return &op;
  }
  return nullptr;
}

std::vector<std::string> OperatorSymbols() {
  std::vector<std::string> symbols;
  for (const Operator& op : kOperators) symbols.emplace_back(op.symbol);
  return symbols;
}

std::string_view DivisorText(Divisor divisor) {
  switch (divisor) {
    case kNone:
      return "none";
    case kTouchingCount:
      return "contributions that touched the coordinate";
    case kCount:
      return "all contributions";
    case kTouchingWeight:
      return "weight of the contributions that touched the coordinate";
    case kWeight:
      return "weight of all contributions";
  }
  return "";
}

}  // namespace sheaf
