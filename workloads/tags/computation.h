// tags: one client's epoch of federated tag prediction. Reads the client named by the task's data selector from the
// local package index, selects only the rows of the model that this client touches, and returns their deltas.
#pragma once

#include "sdk/cpp/computation/computation_row.h"

namespace sheaf {

ComputationRow TagsComputation();

}  // namespace sheaf
