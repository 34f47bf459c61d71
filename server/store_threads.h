// StoreThreads: the threads of one store that is served: its core's, and those beside it that receive, fold and
// checkpoint.
//
//   StoreThreads threads(clock, idle_max);
//   StoreParts parts(store, payloads, threads.core, random, threads.CoreOptions(options), front, &pool);
//   threads.core.Start(parts.runner, parts.core);
//   RETURN_IF_ERROR(threads.BeginDrain(parts.core));   // Whoever waits is answered.
//   RETURN_IF_ERROR(threads.Finish(parts.core));       // What was accepted is checkpointed.
//
// A failed flush ends the process with one line: nobody may be told anything any more, and a restart finds what is
// durable. Whoever has parts calls Stop before they are destroyed: what runs knows them.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/core/core.h"
#include "server/threads/aggregation_pool.h"
#include "server/threads/core_thread.h"
#include "server/threads/strand_pool.h"

namespace sheaf {

struct StoreThreads {
  // `clock` must outlive them. The store has to hear from its server at least every `idle_max`.
  StoreThreads(const Clock& clock, absl::Duration idle_max);

  // These, with the threads beside the core.
  Core::Options CoreOptions(Core::Options options);

  absl::Status BeginDrain(Core& core);
  // After BeginDrain, when no call is open any more: what is accepted later is lost if its round spools nothing. The
  // error of the last checkpoint. All have stopped when it returns.
  absl::Status Finish(Core& core);
  // At once. Stopping twice is fine.
  void Stop();

  const Clock& clock;
  CoreThread core;
  AggregationPool aggregation;
  StrandPool folds;
  StrandPool receptions;

 private:
  // Runs what is left to do beside the core, and what comes of it in the core.
  void FinishFolds(absl::Duration timeout);
};

}  // namespace sheaf
