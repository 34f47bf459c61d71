// CoreThread: the Executor of a running server. One thread owns the core; what others post is gathered into batches
// (batch_gatherer.h), which BatchRunner runs. Nothing expires in the core while an event that is older than its expiry
// waits, or before those could be heard whom a slow batch answered late (see Core::Tick).
//
//   CoreThread thread(clock, StopProcess);
//   Core core(store, payloads, thread, random, options);      // Refers to its executor, so that it comes second.
//   BatchRunner runner(store, payloads, core);
//   thread.Start(runner, core);
//   RETURN_IF_ERROR(thread.RunInBatch([&](absl::Time now) { core.BeginDrain(now); }));
//   thread.Stop();
//
// Post, PostCall and RunInBatch are thread-safe (RunInBatch not from the core's own thread); Defer belongs to events.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "server/core/batch_runner.h"
#include "server/core/batches/executor.h"
#include "server/core/core.h"
#include "server/core/figures/batch_figures.h"
#include "server/threads/batch_gatherer.h"
#include "server/threads/work_meter.h"

namespace sheaf {

class CoreThread final : public Executor {
 public:
  // Called in the core's thread when a flush failed, after which what is on disk is not known, or when the store is
  // another server's now (ABORTED): it must end the process.
  using OnFailure = std::function<void(const absl::Status&)>;

  // `clock` must outlive the thread. A batch runs at least every `idle_max`, also without events.
  CoreThread(const Clock& clock, OnFailure on_failure, absl::Duration idle_max = absl::InfiniteDuration())
      : clock_(clock), on_failure_(std::move(on_failure)), idle_max_(idle_max), gatherer_(clock) {}
  // Stops.
  ~CoreThread() override;

  // Both must live until Stop returns.
  void Start(BatchRunner& runner, Core& core);

  void Post(Event event) override { gatherer_.Add(std::move(event)); }
  void PostUrgent(Event event) override { gatherer_.AddUrgent(std::move(event)); }
  void PostCall(const std::string& caller, Event event) override { gatherer_.AddCall(caller, std::move(event)); }
  void Defer(Deferred deferred) override { runner_->Defer(std::move(deferred)); }
  void NoteWork(std::string_view what) override { meter_.Note(what); }

  // Posts an event and waits until its batch is durable; its commit's status.
  absl::Status RunInBatch(Event event);

  // Runs what was posted so far and ends the thread. Later events never run. Stopping twice is fine.
  void Stop();

  // What is counted of its batches. Thread-safe.
  const BatchFigures& figures() const { return figures_; }

 private:
  class Control;
  void Run();
  // In a batch.
  void RefreshFigures();
  // A batch that has ended.
  void Count(const BatchGatherer::Batch& batch, const Control& control);
  // As BatchControl.
  absl::Time ReadUntil(absl::Time now);

  const Clock& clock_;
  const OnFailure on_failure_;
  const absl::Duration idle_max_;
  BatchGatherer gatherer_;
  BatchRunner* runner_ = nullptr;
  Core* core_ = nullptr;

  // Only the thread's own.
  size_t batch_events_max_ = 16;
  // When a batch with calls of several callers began.
  absl::Time last_shared_ = absl::InfinitePast();
  // How long batches are flushed and committed.
  absl::Duration usual_commit_;
  // After a batch that took long, because its work or its commit did: those whom it answered have as long again to be
  // heard before anything runs out that had not when it began. A renewal may have taken longer than the lease lasts.
  struct Hold {
    absl::Time at;
    absl::Time until = absl::InfinitePast();
  };
  Hold hold_;
  WorkMeter meter_;
  // What each event of a batch took that has run.
  std::vector<absl::Duration> costs_;
  // How long the events of a batch had waited.
  std::vector<double> waited_seconds_;

  BatchFigures figures_;

  std::thread thread_;
};

}  // namespace sheaf
