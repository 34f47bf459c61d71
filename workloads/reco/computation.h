// reco: one client's part in federated reconstruction. Rebuilds the client's own vector from half of its items, which
// never leaves the worker, and returns the gradients that the other half gives for the rows of the items it read.
#pragma once

#include "sdk/cpp/computation/computation_row.h"

namespace sheaf {

ComputationRow RecoComputation();

}  // namespace sheaf
