// How good a `reco` model is. Pure functions, thread-safe.
#pragma once

#include "workloads/reco/config.h"
#include "workloads/reco/dataset.h"
#include "workloads/reco/model.h"

namespace sheaf {

// Of the query items of held-out clients, the share that is among the 20 highest scores of its client, whose vector is
// rebuilt from its support items (micro recall@20). Support items are not candidates. At most 1,000 clients count.
double RecoRecallAt20(const RecoModel& model, const RecoDataset& dataset, const RecoConfig& config);
// The same for a predictor that always answers the most frequent items of the training clients: the floor.
double RecoPopularityRecallAt20(const RecoDataset& dataset, const RecoConfig& config);

}  // namespace sheaf
