// slow: takes as long as the task's payload says ("1.5s", "200ms"), reporting progress and heeding cancellation, and
// then changes nothing; with an index behind a space ("1.5s 17") it is that one_hot. For tests and for trying out
// leases.
#pragma once

#include "sdk/cpp/computation/computation_row.h"

namespace sheaf {

inline constexpr char kSlowComputation[] = "slow";

ComputationRow SlowComputation();

}  // namespace sheaf
