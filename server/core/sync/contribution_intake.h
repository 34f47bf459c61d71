// ContributionIntake: what a worker hands in, and the verdict on it. Validates everything before anything changes.
//
//   const ContributionIntake::Sender sender{.population = "default", .worker = worker, .caller = *caller};
//   const bool is_later = intake.ReceiveBeside(request, sender, judge);  // Large results: `judge` runs later.
//   ASSIGN_OR_RETURN(v1::ResultVerdict verdict, intake.Take(request.results(0), std::nullopt, sender,
//   CallTimes::At(now)));
//
// Small contributions are received (see reception.h) where they are judged; large ones beside the core first. Meanwhile
// their leases do not run out, because they came in time; whether they are still held is asked again when they are
// judged. Runs in the core's thread, inside a batch.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "aggregation/refusal.h"
#include "server/core/access/identity.h"
#include "server/core/batches/core_context.h"
#include "server/core/contributions/checkpoints.h"
#include "server/core/contributions/contribution_fold.h"
#include "server/core/contributions/reception.h"
#include "server/core/contributions/spools.h"
#include "server/core/leases/attempt_end.h"
#include "server/core/leases/call_times.h"
#include "server/core/leases/due_time.h"
#include "server/core/leases/leases_in_reception.h"
#include "server/core/leases/speculation.h"
#include "server/core/lifecycle/round_closing.h"
#include "server/core/rounds/live_rounds.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class ContributionIntake {
 public:
  // What it works with. All outlive it.
  struct Rooms {
    LiveRounds& rounds;
    Spools& spools;
    Checkpoints& checkpoints;
    ContributionFold& fold;
    RoundClosing& closing;
    AttemptEnd& attempts;
    Speculation& speculation;
    LeasesInReception& in_reception;
    DueTime& due;
  };
  ContributionIntake(CoreContext& context, const Rooms& rooms) : context_(context), rooms_(rooms) {}
  // Called when this worker of a population has lost a task to another that was faster.
  void set_on_cancelled(std::function<void(const std::string&, const WorkerName&)> on_cancelled) {
    on_cancelled_ = std::move(on_cancelled);
  }

  // A worker, and who runs it.
  struct Sender {
    std::string population;
    WorkerName worker;
    const Identity& caller;
  };

  // What was received of a call beside the core, by the places of its results; nothing of the others.
  using Receptions = std::vector<std::optional<Reception>>;

  // Only such a call need ask ReceiveBeside.
  static bool HasLarge(const v1::SyncRequest& request);
  // True if some result of the call is large and may be accepted as things are: it is received beside the core, and
  // `judge` runs in an event of its own when that is done for all. `request` lives until then.
  bool ReceiveBeside(const v1::SyncRequest& request, const Sender& sender,
                     std::function<void(Receptions received, absl::Time now)> judge);

  // The verdict on one result: LEASE_LOST where the lease is another's. What was not `received` beside the core is
  // received now. An error is the store's (RESOURCE_EXHAUSTED, INTERNAL ...), never the worker's fault.
  absl::StatusOr<v1::ResultVerdict> Take(const v1::TaskResult& result, std::optional<Reception> received,
                                         const Sender& sender, const CallTimes& times);

 private:
  struct Verdict {
    v1::ResultVerdict::Verdict verdict;
    // What the worker is told.
    std::string message = {};
  };
  // A result on its way to its verdict.
  struct HandedIn {
    const v1::TaskResult& result;
    std::optional<Reception> received;
    const Identity& caller;
    CallTimes times;
  };
  absl::StatusOr<Verdict> Judge(HandedIn handed_in, const Sender& sender);
  // Of a task that its sender holds: the attempt ends with it.
  absl::StatusOr<Verdict> JudgeHeld(LiveRound& round, const TaskRecord& task, HandedIn handed_in);
  absl::StatusOr<Verdict> JudgeContribution(LiveRound& round, const TaskRecord& task, HandedIn handed_in);
  // Why the contribution is refused; nothing if it was accepted.
  absl::StatusOr<std::optional<Refusal>> TakeContribution(LiveRound& round, const TaskRecord& task, Reception reception,
                                                          const v1::TaskResult& result, const CallTimes& times);
  std::optional<Refusal> CheckMetrics(const v1::Contribution& contribution, const LiveRound& round) const;
  // Sets the memory that folding it may take, at most. A refusal if there will never be room for that;
  // RESOURCE_EXHAUSTED with a retry hint if there may be when what waits to be folded is.
  absl::StatusOr<std::optional<Refusal>> CheckMemory(const LiveRound& round, const ValidContribution& valid,
                                                     int64_t& growth_bytes) const;
  // The round that `result` may still be accepted into as things are; null if there is none.
  LiveRound* FindRoundOf(const v1::TaskResult& result, const Sender& sender);

  CoreContext& context_;
  const Rooms rooms_;
  std::function<void(const std::string&, const WorkerName&)> on_cancelled_ = [](const auto&, const auto&) {};
};

}  // namespace sheaf
