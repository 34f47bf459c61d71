// SyncCalls: WorkService.Sync, the one call that workers make, from its message to its answer: results are judged,
// leases renewed, tasks handed out; and a call for which there is nothing yet is parked.
//
//   sync.Answer(request, call, caller, now, reply);   // Now, or later: from a Tick of the polls, or when large results
//                                                     // have been received.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_quota.h"
#include "server/core/access/identity.h"
#include "server/core/batches/call_id.h"
#include "server/core/batches/core_context.h"
#include "server/core/batches/reply.h"
#include "server/core/leases/lease_grants.h"
#include "server/core/leases/lease_renewal.h"
#include "server/core/leases/work_rates.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/sync/contribution_intake.h"
#include "server/core/sync/pace_steering.h"
#include "server/core/sync/parked_polls.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class SyncCalls {
 public:
  // What it is composed of. All outlive it.
  struct Rooms {
    LiveRounds& rounds;
    WorkerRegistry& workers;
    ContributionIntake& intake;
    LeaseGrants& grants;
    LeaseRenewal& renewal;
    ParkedPolls& polls;
    WorkRates& rates;
  };
  SyncCalls(CoreContext& context, const Rooms& rooms) : context_(context), rooms_(rooms), steering_(context_.limits) {}

  // See WorkService.Sync for the contract. The request lives until the reply.
  void Answer(const v1::SyncRequest& request, CallId call, const IdentityPtr& caller, absl::Time now,
              Reply<v1::SyncResponse> reply);

 private:
  // What a call brought and got, as far as it decides whether it may wait for more.
  struct Outcome {
    // How many leases the worker may have, those granted now included: to run, and to prepare.
    int32_t want = 0;
    int32_t want_announced = 0;
    // Of the leases to run, those that were sent again.
    int32_t resent = 0;
    // There were more leases than the answer had room for.
    bool is_cut = false;
    // It did not wait, and comes back when there is room for its call.
    bool is_steered = false;

    bool has_room() const { return want > 0 || want_announced > 0; }
  };
  // A call whose large results have been received.
  struct ReceivedCall {
    const v1::SyncRequest& request;
    CallId id;
    absl::Time arrival;
    // Empty if none of its results is large.
    ContributionIntake::Receptions received;
  };
  void AnswerReceived(ReceivedCall call, const WorkerProfile& worker, absl::Time now,
                      const Reply<v1::SyncResponse>& reply);
  absl::StatusOr<v1::SyncResponse> Serve(ReceivedCall& call, const WorkerProfile& worker, absl::Time now,
                                         Outcome& outcome);
  // The verdicts on what the worker hands in, until one is an error of the stores', which is returned.
  absl::Status TakeResults(ReceivedCall& call, const WorkerProfile& worker, absl::Time now, v1::SyncResponse& response);
  // The call may be parked, if there is nothing to say.
  bool MayWait(const v1::SyncRequest& request, const WorkerProfile& worker) const;
  void SetPaceOf(const v1::SyncRequest& request, const WorkerProfile& worker, Outcome& outcome,
                 v1::SyncResponse& response) const;
  // The call is answered, and not parked: it counts, and those that leave empty-handed are spread, not before `soon`.
  void Steer(const v1::SyncRequest& request, const WorkerProfile& worker, const Outcome& outcome, absl::Time now,
             v1::SyncResponse& response);
  // The same for one for which there is no room among the workers that are known.
  absl::Status TurnedAway(const v1::SyncRequest& request, absl::Status refusal, absl::Time now);
  int64_t NumQueued(const std::string& population) const;

  CoreContext& context_;
  const Rooms rooms_;
  PaceSteering steering_;
  LogQuota stops_;
};

}  // namespace sheaf
