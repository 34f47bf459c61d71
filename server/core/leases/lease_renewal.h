// LeaseRenewal: what a worker is told of a lease that it holds, which runs from now on if the worker has made progress.
//
//   ASSIGN_OR_RETURN(v1::LeaseUpdate update, renewal.Renew(held, worker, CallTimes::At(now)));
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/leases/call_times.h"
#include "server/core/leases/due_time.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/work_service.pb.h"
#include "storage/records.h"

namespace sheaf {

// When an attempt ends at the latest that was prepared, and whose worker is told at `now` that the round has opened.
// Its time counts from the first time that it is told: a later one puts nothing off. What its lease was promised for
// stays.
absl::Time AttemptDeadlineOfOpened(const LiveRound& round, const TaskRecord& task, absl::Time now);

class LeaseRenewal {
 public:
  // All outlive this.
  LeaseRenewal(CoreContext& context, LiveRounds& rounds, DueTime& due)
      : context_(context), rounds_(rounds), due_(due) {}

  // The task may have been carried over: its worker holds it under the name that it was given. HELD, and until when;
  // OPENED where the worker does not know yet that its round is; CANCELLED if the round, or the task, needs it no more;
  // LOST if it is another's by now, or never was this worker's. An error is the store's.
  absl::StatusOr<v1::LeaseUpdate> Renew(const v1::HeldLease& held, const WorkerProfile& worker, const CallTimes& times);
  // The worker prepared it, and has not heard that its round is open. Once it does, it takes the place of a task that
  // the worker would have run.
  bool WaitsForNews(const v1::HeldLease& held) const;

 private:
  // Where the task is by now, if its round hands out tasks.
  std::optional<TaskId> LivePlaceOf(const v1::HeldLease& held) const;
  // What OPENED says of a task that its worker has prepared. Nothing if nobody knows any more.
  absl::StatusOr<std::optional<std::string>> BroadcastOf(const LiveRound& round, const TaskRecord& task) const;

  CoreContext& context_;
  LiveRounds& rounds_;
  DueTime& due_;
};

}  // namespace sheaf
