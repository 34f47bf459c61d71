// ContributionIntake: what a worker hands in, and the verdict on it. Validates everything before anything changes.
// Runs in the core's thread, inside a batch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "aggregation/refusal.h"
#include "base/log_quota.h"
#include "server/core/access_control.h"
#include "server/core/core_context.h"
#include "server/core/round_manager.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class ContributionIntake {
 public:
  // `on_delayed` hears when a task that must wait becomes available.
  ContributionIntake(CoreContext& context, RoundManager& rounds, std::function<void(absl::Time)> on_delayed)
      : context_(context), rounds_(rounds), on_delayed_(std::move(on_delayed)) {}

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
  absl::StatusOr<std::optional<Refusal>> TakeContribution(LiveRound& round, const TaskRecord& task,
                                                          const v1::TaskResult& result, const Identity& caller,
                                                          absl::Time now);
  std::optional<Refusal> CheckMetrics(const v1::Contribution& contribution, const LiveRound& round) const;
  // The upload was begun for this very lease, and its bytes are not there any more: it went into the spool in a batch
  // that a crash or a full disk undid, or it was in the memory of a server that ended. Not the worker's fault, and
  // nothing speaks against the task. A StartUpload that comes late may have begun it anew, with nothing in it.
  bool UploadIsGone(const v1::TaskResult& result, const TaskId& task, const Identity& caller);
  // Why the upload that it names is none that can be taken: it is another's or was not finished.
  std::optional<Refusal> CheckUpload(const v1::TaskResult& result, const Identity& caller);
  // A contribution that came in its request, or as an upload, which is read piece by piece.
  struct Received {
    // Null if it was uploaded.
    const std::string* bytes = nullptr;
    std::shared_ptr<const BlobView> file;
    int64_t size_bytes = 0;
    // SHA-256, hex.
    std::string digest;
  };
  absl::StatusOr<Received> Receive(const LiveRound& round, const v1::TaskResult& result);
  // RESOURCE_EXHAUSTED if it has too many parts; the codes of BlobView.
  static absl::Status CheckPartsOf(const Received& received, const Limits& limits);
  // INVALID_ARGUMENT if it is malformed; the codes of BlobView.
  static absl::Status Parse(const Received& received, v1::Contribution& contribution);

  CoreContext& context_;
  LogQuota ends_;
  RoundManager& rounds_;
  std::function<void(absl::Time)> on_delayed_;
};

}  // namespace sheaf
