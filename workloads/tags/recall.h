// How good a `tags` model is. Pure functions, thread-safe.
#pragma once

#include "workloads/tags/dataset.h"
#include "workloads/tags/model.h"

namespace sheaf {

// Of the labels of all held-out examples, the share that is among the 5 highest scores of its example (micro recall@5).
double TagsRecallAt5(const TagsModel& model, const TagsDataset& dataset);
// The same for a predictor that always answers the 5 most frequent labels of the training clients: the floor.
double TagsPopularityRecallAt5(const TagsDataset& dataset);

}  // namespace sheaf
