// BatchRunner: runs a batch of events as one store transaction: the group commit.
//
//   BatchRunner runner(store, payloads, core);
//   absl::Status committed = runner.Run(std::move(events), clock.Now());
//
// Begins a batch; runs the events; lets the core tick (expired leases, deadlines, parked polls); flushes the spools,
// then commits; then runs what was deferred. If the commit fails nothing has happened, everyone deferred is told so,
// and the core forgets what it had assumed. Not thread-safe: the runtime's core thread, or the simulation, owns it.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/executor.h"
#include "storage/payload_store.h"
#include "storage/task_store.h"

namespace sheaf {

class Core;

class BatchRunner {
 public:
  // All must outlive the runner.
  BatchRunner(TaskStore& store, PayloadStore& payloads, Core& core) : store_(store), payloads_(payloads), core_(core) {}

  // Runs `events` and the core's tick at `now`. INTERNAL or DATA_LOSS means that the process must stop: a flush
  // failed, and what is on disk is not known. RESOURCE_EXHAUSTED (the disk is full) only fails this batch.
  // `on_worked` is called in between: what follows is the disk's time, which a smaller batch would not shorten.
  absl::Status Run(
      std::vector<Executor::Event> events, absl::Time now, const std::function<void()>& on_worked = [] {});

  // Only from inside an event or the core's tick.
  void Defer(Executor::Deferred deferred) { deferred_.push_back(std::move(deferred)); }

 private:
  absl::Status Commit();

  TaskStore& store_;
  PayloadStore& payloads_;
  Core& core_;
  std::vector<Executor::Deferred> deferred_;
};

}  // namespace sheaf
