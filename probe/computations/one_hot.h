// one_hot: a contribution that can be recognised in the sum, for checks that each one is counted once. The task's
// payload is an index, in decimal.
#pragma once

#include "sdk/cpp/computation/computation_row.h"

namespace sheaf {

inline constexpr char kOneHotComputation[] = "one_hot";

ComputationRow OneHotComputation();

}  // namespace sheaf
