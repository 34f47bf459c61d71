// hitters: one client's counts of dependency names. Reads the client named by the task's data selector from the local
// data, and returns them for the operator keyed_sum.
#pragma once

#include "sdk/cpp/computation/computation_row.h"

namespace sheaf {

ComputationRow HittersComputation();

}  // namespace sheaf
