// Core: the server's state machines, free of threads, sockets, clocks and chance. It steps: an event in (a handler's
// call, the passing of time), store operations and replies out; always inside a batch (see BatchRunner).
//
//   Core core(store, payloads, executor, random, {.limits = limits});
//   RETURN_IF_ERROR(core.Recover(now));
//   core.sync().Answer(request, call, caller, now, reply);
//   core.Tick(now, read_until);
//
// Not thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/access/access_control.h"
#include "server/core/batches/core_context.h"
#include "server/core/broadcasts/broadcasts.h"
#include "server/core/broadcasts/inline_broadcasts.h"
#include "server/core/contributions/checkpoints.h"
#include "server/core/contributions/contribution_fold.h"
#include "server/core/contributions/spools.h"
#include "server/core/figures/core_figures.h"
#include "server/core/inspection/round_watch.h"
#include "server/core/inspection/task_listing.h"
#include "server/core/inspection/unmet_requirements.h"
#include "server/core/leases/attempt_end.h"
#include "server/core/leases/due_time.h"
#include "server/core/leases/lease_expiry.h"
#include "server/core/leases/lease_grants.h"
#include "server/core/leases/lease_renewal.h"
#include "server/core/leases/leases_in_reception.h"
#include "server/core/leases/speculation.h"
#include "server/core/leases/work_rates.h"
#include "server/core/lifecycle/carry_over.h"
#include "server/core/lifecycle/new_rounds.h"
#include "server/core/lifecycle/release_sink.h"
#include "server/core/lifecycle/retention.h"
#include "server/core/lifecycle/round_changes.h"
#include "server/core/lifecycle/round_closing.h"
#include "server/core/lifecycle/round_creations.h"
#include "server/core/lifecycle/round_openings.h"
#include "server/core/lifecycle/round_recovery.h"
#include "server/core/lifecycle/round_sealer.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/sync/contribution_intake.h"
#include "server/core/sync/parked_polls.h"
#include "server/core/sync/sync_calls.h"
#include "server/core/uploads/uploads.h"
#include "server/core/workers/worker_registry.h"
#include "server/core/workers/worker_retention.h"

namespace sheaf {

class Core {
 public:
  struct Options {
    Limits limits;
    // Which of the stores of a database this is.
    Shard shard = kHomeShard;
    // For people: where the store is.
    std::string data_directory;
    // Nobody gets in without a token, even while there is none.
    bool requires_tokens = false;
    // See CoreContext; must outlive the core. Null: one after the other, and at once.
    ParallelFor* parallel = nullptr;
    Background* folds = nullptr;
    Background* receptions = nullptr;
    // How long work takes, for the figures.
    CoreFigures::Watch watch = CoreFigures::NoWatch;
  };

  // All must outlive the core.
  Core(TaskStore& store, PayloadStore& payloads, Executor& executor, Random& random, Options options);

  // Rebuilds what a stop or crash left in the stores. Once, before anything else, in no batch.
  // DATA_LOSS if what is stored cannot be true; names it.
  absl::Status Recover(absl::Time now);

  // Called by BatchRunner in each batch: expired leases, deadlines, parked calls. A renewal or result that came in time
  // counts although the core stood still when it should have been read: a lease, an attempt or a round whose time ran
  // out after `read_until` has not run out yet, because a call that arrived before that may still wait. Calls are read
  // in the order in which they came, so that `read_until` follows `now` at the distance that the queue is long
  // (queue_wait_max, queued_calls_max), and a crowd that never ends puts nothing off for longer.
  void Tick(absl::Time now, absl::Time read_until);
  // When Tick wants to be called although nothing else happens.
  absl::Time NextTick(absl::Time now) const;
  // Called by BatchRunner when a batch has failed. An error if the store cannot be read: the process must stop.
  absl::Status OnRollback(absl::Time now);

  // Answers everybody who waits, and grants nothing more; results are still taken.
  void BeginDrain(absl::Time now);
  void CheckpointAll(absl::Time now);

  // What is counted, for whoever looks on; any thread reads it. The gauges of rounds and tasks are as of the newest
  // call of RefreshFigures, between two batches.
  const CoreFigures& figures() const { return figures_; }
  void RefreshFigures() { rounds_.queue().Refresh(context_.store); }
  // Memory of contributions that are being received or wait to be folded. Any thread reads it.
  const MemoryBudget& unfolded() const { return fold_.unfolded(); }

  // For handlers.
  CoreContext& context() { return context_; }
  // What the store has, for whoever only looks.
  TaskQueries& queries() { return context_.store; }
  AccessControl& access() { return access_; }
  LiveRounds& rounds() { return rounds_; }
  Broadcasts& broadcasts() { return broadcasts_; }
  OpenBlobs& open_blobs() { return open_blobs_; }
  NewRounds& new_rounds() { return new_rounds_; }
  RoundCreations& creations() { return creations_; }
  RoundOpenings& openings() { return openings_; }
  RoundClosing& closing() { return closing_; }
  Uploads& uploads() { return uploads_; }
  WorkerRegistry& workers() { return workers_; }
  AttemptEnd& attempts() { return attempts_; }
  const WorkRates& rates() const { return rates_; }
  SyncCalls& sync() { return sync_; }
  ParkedPolls& polls() { return polls_; }
  bool is_draining() const { return polls_.is_draining(); }
  RoundWatch& watch() { return watch_; }
  UnmetRequirements& unmet() { return unmet_; }
  TaskListing& task_listing() { return task_listing_; }
  const Limits& limits() const { return context_.limits; }
  Shard shard() const { return context_.shard; }
  const std::string& data_directory() const { return data_directory_; }
  absl::Time start_time() const { return start_time_; }

 private:
  void KeepHouse(absl::Time now);

  InlineFor one_by_one_;
  InlineBackground at_once_;
  CoreFigures figures_;
  CoreContext context_;
  const std::string data_directory_;
  const bool requires_tokens_;
  AccessControl access_;
  LiveRounds rounds_;
  OpenBlobs open_blobs_;
  Broadcasts broadcasts_;
  InlineBroadcasts inline_broadcasts_;
  Spools spools_;
  Checkpoints checkpoints_;
  ContributionFold fold_;
  ValuesRelease values_release_;
  PartialAggregateRelease partial_aggregate_release_;
  CarryOver carry_over_;
  RoundChanges changes_;
  RoundSealer sealer_;
  RoundClosing closing_;
  RoundRecovery recovery_;
  NewRounds new_rounds_;
  RoundCreations creations_;
  RoundOpenings openings_;
  WorkerRegistry workers_;
  Speculation speculation_;
  DueTime due_;
  WorkRates rates_;
  LeasesInReception in_reception_;
  AttemptEnd attempts_;
  LeaseExpiry expiry_;
  LeaseRenewal renewal_;
  LeaseGrants grants_;
  ParkedPolls polls_;
  ContributionIntake intake_;
  SyncCalls sync_;
  Uploads uploads_;
  RoundWatch watch_;
  UnmetRequirements unmet_;
  TaskListing task_listing_;
  Retention retention_;
  WorkerRetention worker_retention_;
  absl::Time start_time_;
  absl::Time next_housekeeping_ = absl::InfinitePast();
  // What a failed batch could not do is due at once again, and fails again while the disk is full: not at once.
  absl::Time rest_until_ = absl::InfinitePast();
};

}  // namespace sheaf
