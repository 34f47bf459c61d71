// BatchRunner: runs a batch of events as one store transaction: the group commit.
//
//   BatchRunner runner(store, payloads, core);
//   absl::Status committed = runner.Run(std::move(events), clock.Now());
//
// Begins a batch; runs the events; lets the core tick (expired leases, deadlines, parked polls); flushes the spools,
// then commits; then runs what was deferred. If the commit fails nothing has happened, everyone deferred is told so,
// and the core forgets what it had assumed. Not thread-safe: the runtime's core thread, or the simulation, owns it.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/batches/executor.h"
#include "storage/payload_store.h"
#include "storage/task_store.h"

namespace sheaf {

class Core;

// What whoever runs batches decides while one runs; as it stands, nothing waits behind the batch.
class BatchControl {
 public:
  virtual ~BatchControl() = default;
  // Asked before each event but the first: false if the batch has worked enough, and the others go into the next one.
  virtual bool MayGoOn() { return true; }
  // Takes the events that the batch leaves.
  virtual void TakeBack(std::span<Executor::Event> /*events*/) {}
  // After the events: no call that arrived before this still waits to be read, and whoever was answered at this time
  // could be heard again. Nothing expires later than that (see Core::Tick).
  virtual absl::Time ReadUntil(absl::Time now) { return now; }
  // After the core's tick: what follows is the disk's time, which a smaller batch would not shorten.
  virtual void OnWorked() {}
  // In the commit: the spools are flushed, and the store has committed, or failed.
  virtual void OnFlushed() {}
  virtual void OnCommitted() {}
};

class BatchRunner {
 public:
  // All must outlive the runner.
  BatchRunner(TaskStore& store, PayloadStore& payloads, Core& core) : store_(store), payloads_(payloads), core_(core) {}

  // Runs `events` and the core's tick at `now`. INTERNAL or DATA_LOSS means that the process must stop: a flush
  // failed, and what is on disk is not known; ABORTED that the store is another server's now, and whoever was deferred
  // hears UNAVAILABLE: the other one takes the same call. RESOURCE_EXHAUSTED (the disk is full) and UNAVAILABLE only
  // fail this batch.
  absl::Status Run(std::vector<Executor::Event> events, absl::Time now, BatchControl& control);
  absl::Status Run(std::vector<Executor::Event> events, absl::Time now) {
    BatchControl nothing_waits;
    return Run(std::move(events), now, nothing_waits);
  }

  // Only from inside an event or the core's tick.
  void Defer(Executor::Deferred deferred) { deferred_.push_back(std::move(deferred)); }

 private:
  absl::Status Commit(BatchControl& control);

  TaskStore& store_;
  PayloadStore& payloads_;
  Core& core_;
  std::vector<Executor::Deferred> deferred_;
};

}  // namespace sheaf
