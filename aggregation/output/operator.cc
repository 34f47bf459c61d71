#include "aggregation/output/operator.h"

namespace sheaf {

const Operator* FindOperator(std::span<const Operator> table, std::string_view symbol) {
  for (const Operator& op : table) {
    if (op.symbol == symbol) return &op;
  }
  return nullptr;
}

std::string_view DivisorText(Divisor divisor) {
  switch (divisor) {
    case Divisor::kNone:
      return "none";
    case Divisor::kTouchingCount:
      return "contributions that touched the coordinate";
    case Divisor::kCount:
      return "all contributions";
    case Divisor::kTouchingWeight:
      return "weight of the contributions that touched the coordinate";
    case Divisor::kWeight:
      return "weight of all contributions";
  }
  return "";
}

}  // namespace sheaf
