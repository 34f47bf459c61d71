// hitters: one client's counts of dependency names. Reads the client named by the task's data selector from the local
// data, and returns them for the operator keyed_sum.
#pragma once

#include <memory>

#include "worker/computation.h"
#include "worker/data_sources.h"

namespace sheaf {

// `data` outlives it.
std::unique_ptr<Computation> MakeHitters(DataSources& data);

}  // namespace sheaf
