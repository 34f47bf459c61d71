// The threads that are measured with: one, or as many as `sheaf_aggregation_bench --threads=N` says.
#pragma once

#include "base/parallel_for.h"

namespace sheaf {

ParallelFor& Threads();

}  // namespace sheaf
