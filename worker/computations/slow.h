// slow: takes as long as the task's payload says ("1.5s", "200ms"), reporting progress and heeding cancellation, and
// then changes nothing; with an index behind a space ("1.5s 17") it is that one_hot. For tests and for trying out
// leases.
#pragma once

#include <memory>

#include "worker/computation.h"
#include "worker/waiter.h"

namespace sheaf {

inline constexpr char kSlowComputation[] = "slow";

// `waiter` outlives it.
std::unique_ptr<Computation> MakeSlow(Waiter& waiter);

}  // namespace sheaf
