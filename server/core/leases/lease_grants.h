// LeaseGrants: which tasks a worker leaves with: those that it was given and does not know of, sent again, and new ones
// from the rounds that its turn has come for (see scheduler.h) and whose requirements it fulfils.
//
//   grants.BeginAnswer();
//   ASSIGN_OR_RETURN(const LeaseGrants::Held held, grants.Resend(request, worker, now, response));
//   const CallTimes times = CallTimes::At(now);
//   ASSIGN_OR_RETURN(const bool is_cut, grants.Grant(worker, {.poll_id = "p1", .want = 4}, times, response));
//   grants.BeginBatch();                             // The batch's answers have left.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/leases/call_times.h"
#include "server/core/leases/due_time.h"
#include "server/core/leases/lease_room.h"
#include "server/core/leases/scheduler.h"
#include "server/core/leases/speculation.h"
#include "server/core/leases/work_rates.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class LeaseGrants {
 public:
  // All outlive this.
  LeaseGrants(CoreContext& context, LiveRounds& rounds, WorkerRegistry& workers, Speculation& speculation, DueTime& due,
              WorkRates& rates)
      : context_(context),
        rounds_(rounds),
        workers_(workers),
        speculation_(speculation),
        due_(due),
        rates_(rates),
        room_(context.limits.sync_leases_bytes_max, context.limits.batch_leases_bytes_max) {}

  // Leases of one answer, and of all answers of a batch, have so much room (see lease_room.h).
  void BeginBatch() { room_.BeginBatch(); }
  void BeginAnswer() { room_.BeginAnswer(); }
  bool IsBatchFull() const { return room_.IsBatchFull(); }

  struct Held {
    // Leases that the worker has.
    int64_t total = 0;
    // Of these, sent again: those to run, and those of announced rounds.
    int32_t resent = 0;
    int32_t resent_announced = 0;
    // There are more to send again than the answer had room for.
    bool is_cut = false;
  };
  // Sends again what the worker was given and names neither as held nor in a result: the answer that brought it was
  // lost. As far as there is room.
  absl::StatusOr<Held> Resend(const v1::SyncRequest& request, const WorkerProfile& worker, absl::Time now,
                              v1::SyncResponse& response);

  struct Wish {
    // The same for each try of one poll: the store gives it the same leases.
    std::string poll_id;
    int32_t want = 0;
    // Of announced rounds.
    int32_t want_announced = 0;
  };
  // Leases up to `wish.want` tasks to run, and then up to `wish.want_announced` to prepare. True if there was no room
  // for as many. Looks only at rounds to which work has come since the worker was last told all there was.
  absl::StatusOr<bool> Grant(const WorkerProfile& worker, const Wish& wish, const CallTimes& times,
                             v1::SyncResponse& response);

 private:
  // Of what the worker wishes, one kind.
  struct Portion {
    const std::string& poll_id;
    int32_t want = 0;
    bool is_announced = false;
  };
  absl::StatusOr<bool> GrantPortion(const WorkerProfile& worker, const Portion& wish, const CallTimes& times,
                                    v1::SyncResponse& response);
  // The same of one round, whose requirements the worker fulfils as `match` says. How many it were.
  absl::StatusOr<int32_t> LeaseFrom(LiveRound& round, const RequirementIndex::Match& match, const WorkerProfile& worker,
                                    const Portion& wish, const CallTimes& times, v1::SyncResponse& response);
  // The round's requirements that the worker fulfils, or some of them. Takes what it looks at from `candidates_left`.
  RequirementIndex::Match MatchOf(const WorkerProfile& worker, const LiveRound& round, int64_t& candidates_left);
  // The same of tasks that stragglers hold.
  absl::StatusOr<std::vector<TaskRecord>> LeaseAgain(const LiveRound& round, const TaskStore::LeaseTasksParams& like,
                                                     size_t num_leased, absl::Time now);
  // Tasks of it wait, or may be leased again.
  bool HasWork(const LiveRound& round, absl::Time now) const;
  // No lease of the round's is larger on the wire.
  int64_t LeaseBytesMax(const LiveRound& round) const;

  CoreContext& context_;
  LiveRounds& rounds_;
  WorkerRegistry& workers_;
  Speculation& speculation_;
  DueTime& due_;
  WorkRates& rates_;
  LeaseRoom room_;
  Scheduler scheduler_;
};

}  // namespace sheaf
