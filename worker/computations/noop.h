// noop: the contribution that changes nothing, at once. For benchmarks and tests.
#pragma once

#include <memory>

#include "worker/computation.h"

namespace sheaf {

inline constexpr char kNoopComputation[] = "noop";

std::unique_ptr<Computation> MakeNoop();

}  // namespace sheaf
