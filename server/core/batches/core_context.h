// CoreContext: what every room of the core works with: the stores, the executor, chance, the threads beside the core,
// and what is counted of all of it. Refers to them, and owns only the limits. Each room gets a reference, and nothing
// global.
//
//   ASSIGN_OR_RETURN(const RoundRecord round, context.store.GetRound(id));
//   context.executor.Defer([](const absl::Status& commit) { LogInfo("committed: {}", commit.ToString()); });
//   context.receptions.Run("r-2k5m", [] { LogInfo("beside the core"); });
//
// The core's, but for what says otherwise.
#pragma once

#include "base/parallel_for.h"
#include "base/random.h"
#include "server/core/batches/background.h"
#include "server/core/batches/executor.h"
#include "server/core/figures/core_figures.h"
#include "server/core/limits/limits.h"
#include "storage/payload_store.h"
#include "storage/shard.h"
#include "storage/task_store.h"

namespace sheaf {

struct CoreContext {
  TaskStore& store;
  PayloadStore& payloads;
  Executor& executor;
  Random& random;
  // Shares the work of large folds out. Any thread's.
  ParallelFor& parallel;
  // For what is done with rounds' accumulators (see FoldStrand), a strand each; and, so that nobody's contribution
  // waits for another round's checkpoint, for receiving large contributions and other short work.
  Background& folds;
  Background& receptions;
  // Any thread's.
  CoreFigures& figures;
  Limits limits;
  // What it makes is named as that shard's.
  Shard shard = kHomeShard;
};

}  // namespace sheaf
