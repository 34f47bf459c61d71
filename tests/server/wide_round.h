// A round of a sum of kWide elements, whose accumulators' memory can be foretold.
#pragma once

#include <cstdint>
#include <functional>

#include "tests/server/core_federation.h"

namespace sheaf {

constexpr int64_t kWide = 1 << 14;
// One bin of all elements.
constexpr int64_t kBinBytes = 8 * kWide;

v1::RoundSpec WideRound(int num_tasks);
v1::TaskResult WideResult(const v1::Lease& lease, const std::function<float(int64_t)>& value_of);

}  // namespace sheaf
