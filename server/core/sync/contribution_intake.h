// ContributionIntake: what a worker hands in, and the verdict on it. Validates everything before anything changes.
//
//   if (intake.ReceiveBeside(request, population, caller, judge)) return;   // Large results: `judge` runs later.
//   ASSIGN_OR_RETURN(v1::ResultVerdict verdict, intake.Take(result, population, caller, now));
//
// Small contributions are received (see reception.h) where they are judged; large ones beside the core first. Meanwhile
// their leases do not expire, because they came in time; whether they are still held is asked again when they are
// judged. Runs in the core's thread, inside a batch.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "aggregation/refusal.h"
#include "base/log_quota.h"
#include "server/core/access/access_control.h"
#include "server/core/batches/core_context.h"
#include "server/core/contributions/reception.h"
#include "server/core/lifecycle/round_manager.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class ContributionIntake {
 public:
  // `on_delayed` hears when a task that must wait becomes available.
  ContributionIntake(CoreContext& context, RoundManager& rounds, std::function<void(absl::Time)> on_delayed)
      : context_(context), rounds_(rounds), on_delayed_(std::move(on_delayed)) {}

  // Only such a call need ask ReceiveBeside.
  static bool HasLarge(const v1::SyncRequest& request);
  // True if some result of the call is large and may be accepted as things are: it is received beside the core, and
  // `judge` runs in an event of its own when that is done for all. `request` lives until then.
  bool ReceiveBeside(const v1::SyncRequest& request, const std::string& population, const Identity& caller,
                     std::function<void(absl::Time now)> judge);
  // The result of this lease, which has run out, is being received: it came in time, and the lease is left as it is
  // until that is judged. `on_delayed` is called then.
  bool LeavesExpired(const LeaseToken& token);
  // No more leases than this are left so.
  int num_receiving() const { return static_cast<int>(receiving_.size()); }
  // After the call was judged: what was received of it is not needed any more.
  void Drop(const v1::SyncRequest& request);

  // The verdict on one result of `worker` of `population`, which `caller` runs: LEASE_LOST where the lease is
  // another's. An error is the store's (RESOURCE_EXHAUSTED, INTERNAL ...), never the worker's fault.
  absl::StatusOr<v1::ResultVerdict> Take(const v1::TaskResult& result, const std::string& population,
                                         const WorkerName& worker, const Identity& caller, absl::Time now);

  // What to say of a lease that is no longer the task's: ACCEPTED never, HELD never.
  static v1::ResultVerdict::Verdict VerdictOnLost(const RoundRecord& round, const TaskRecord& task,
                                                  const LeaseToken& token);

  // Ends an attempt without a contribution and decides what becomes of the task.
  absl::Status EndAttempt(LiveRound& round, const TaskRecord& task, AttemptOutcome outcome, bool is_permanent,
                          const std::string& error, const v1::AttemptTimings& timings, absl::Time now);

 private:
  absl::StatusOr<v1::ResultVerdict> Judge(const v1::TaskResult& result, const std::string& population,
                                          const WorkerName& worker, const Identity& caller, absl::Time now);
  // Why the contribution is refused; nothing if it was accepted.
  absl::StatusOr<std::optional<Refusal>> TakeContribution(LiveRound& round, const TaskRecord& task, Reception reception,
                                                          const v1::TaskResult& result, absl::Time now);
  std::optional<Refusal> CheckMetrics(const v1::Contribution& contribution, const LiveRound& round) const;
  // The upload was begun for this very lease, and its bytes are not there any more: it went into the spool in a batch
  // that a crash or a full disk undid, or it was in the memory of a server that ended. Not the worker's fault, and
  // nothing speaks against the task. A StartUpload that comes late may have begun it anew, with nothing in it.
  static bool UploadIsGone(const Reception& reception, const v1::TaskResult& result, const TaskId& task,
                           const Identity& caller);
  // Why the upload cannot be taken: it was never begun, or not finished.
  static std::optional<Refusal> CheckUpload(const Reception& reception, const v1::TaskResult& result);
  // The round that `result` may still be accepted into as things are; null if there is none.
  LiveRound* FindRoundOf(const v1::TaskResult& result, const std::string& population, const Identity& caller);
  // What was received of it beside the core; of a small one, what is received now.
  Reception Received(const LiveRound& round, const v1::TaskResult& result);

  CoreContext& context_;
  LogQuota ends_;
  RoundManager& rounds_;
  std::function<void(absl::Time)> on_delayed_;
  // By the place of the result in its request.
  std::map<const v1::TaskResult*, Reception> received_;
  // The leases of results that are being received.
  struct Receiving {
    int num_calls = 0;
    bool is_overdue = false;
  };
  std::map<LeaseToken, Receiving> receiving_;
};

}  // namespace sheaf
