// tags: one client's epoch of federated tag prediction. Reads the client named by the task's data selector from the
// local package index, selects only the rows of the model that this client touches, and returns their deltas.
#pragma once

#include <memory>

#include "worker/computation.h"
#include "worker/data_sources.h"

namespace sheaf {

// `data` outlives it.
std::unique_ptr<Computation> MakeTags(DataSources& data);

}  // namespace sheaf
