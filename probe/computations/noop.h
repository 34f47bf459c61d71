// noop: the contribution that changes nothing, at once. For benchmarks and tests.
#pragma once

#include "sdk/cpp/computation/computation_row.h"

namespace sheaf {

inline constexpr char kNoopComputation[] = "noop";

ComputationRow NoopComputation();

}  // namespace sheaf
