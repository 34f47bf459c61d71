// WorkDesk: where workers come with results and leave with tasks: WorkService.Sync, the long polls parked in it, and
// the leases.
//
//   desk.Sync(request, call, caller, now, reply);   // Answers now, or parks the call and answers from a later Tick.
//   desk.Tick(now, read_until);                     // Expired leases; parked calls that can be answered.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log_quota.h"
#include "server/core/access/access_control.h"
#include "server/core/batches/call_id.h"
#include "server/core/batches/core_context.h"
#include "server/core/batches/reply.h"
#include "server/core/leases/lease_room.h"
#include "server/core/leases/scheduler.h"
#include "server/core/lifecycle/round_manager.h"
#include "server/core/limits/population_share.h"
#include "server/core/limits/rate_window.h"
#include "server/core/sync/contribution_intake.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class WorkDesk {
 public:
  WorkDesk(CoreContext& context, RoundManager& rounds, WorkerRegistry& workers)
      : context_(context),
        rounds_(rounds),
        workers_(workers),
        intake_(context, rounds, [this](absl::Time time) { DueAt(time); }),
        lease_room_(context.limits.sync_leases_bytes_max, context.limits.batch_leases_bytes_max) {}

  // See WorkService.Sync for the contract.
  void Sync(const v1::SyncRequest& request, CallId call, const IdentityPtr& caller, absl::Time now,
            Reply<v1::SyncResponse> reply);
  // Nobody waits for this call's answer any more: if it is parked it ends with CANCELLED, and is granted nothing.
  void Abandon(CallId call);

  // The token is void: who waits under it is sent away, and granted nothing.
  void EndPollsOf(const TokenId& token);

  // Takes a task from its worker or back from the buried ones. As TaskStore::RequeueTask.
  absl::StatusOr<TaskRecord> Requeue(const TaskId& id, absl::Time now);
  // The leases of this round are void: workers parked with one of them are told.
  void OnRoundClosed(const RoundId& round) { closed_rounds_.insert(round); }
  // The worker's next answer says so; a parked one is answered at the next Tick.
  void OnDrainChanged(const std::string& population, const WorkerName& worker);

  // Takes back the leases that ended up to `read_until` (see Core::Tick). A renewal that had to wait counts from `now`,
  // when it is read: from its arrival it might have run out again.
  void Tick(absl::Time now, absl::Time read_until);
  absl::Time NextTick() const;
  // New tasks may be there, or the clock was not looked at: look at everything again.
  void Wake() { due_time_ = absl::InfinitePast(); }
  // From here on nobody waits and nobody is given work.
  void BeginDrain(absl::Time now);
  bool is_draining() const { return is_draining_; }

  int64_t num_parked(const std::string& population) const;
  bool IsParked(const std::string& population, const WorkerName& worker) const;
  double LeasesPerSecond(const std::string& population, absl::Time now) const;
  double CompletionsPerSecond(const std::string& population, absl::Time now) const;

 private:
  struct Parked {
    std::string population;
    WorkerName worker;
    std::string poll_id;
    int32_t want = 0;
    std::vector<v1::HeldLease> held;
    IdentityPtr caller;
    CallId call;
    // Grows from one to the next.
    int64_t number = 0;
    // Of the request on the wire: they count as open until it is answered.
    int64_t bytes = 0;
    // RoundManager::work_version() when it last looked for work.
    int64_t looked_at = 0;
    absl::Time arrival_time;
    absl::Time until;
    Reply<v1::SyncResponse> reply;
  };
  using ParkedList = std::list<Parked>;
  // By looked_at and number: who has not looked for the longest, and of those who waits longest.
  using Wanting = std::map<std::pair<int64_t, int64_t>, ParkedList::iterator>;
  struct Rates {
    RateWindow leases;
    RateWindow completions;
  };

  struct Outcome {
    // How many leases the worker may have, those granted now included.
    int32_t want = 0;
    // There were more leases than the answer had room for.
    bool is_cut = false;
  };
  // What Sync does once the call's large results have been received.
  void Judge(const v1::SyncRequest& request, CallId call, const WorkerProfile& worker, absl::Time now,
             const Reply<v1::SyncResponse>& reply);
  absl::StatusOr<v1::SyncResponse> Answer(const v1::SyncRequest& request, const WorkerProfile& worker, absl::Time now,
                                          Outcome& outcome);
  v1::SyncResponse EmptyResponse(const WorkerProfile& worker) const;
  // When to call again.
  enum class Pace { kAtOnce, kSoon, kLater };
  void SetPace(Pace pace, v1::SyncResponse& response) const;
  // The call may be parked, if there is nothing to say.
  bool MayWait(const v1::SyncRequest& request, const WorkerProfile& worker) const;
  static void ComeBackLater(v1::SyncResponse& response);

  absl::StatusOr<v1::LeaseUpdate> Update(const v1::HeldLease& held, const WorkerProfile& worker, absl::Time arrival,
                                         absl::Time now);
  struct Held {
    int64_t total = 0;
    int32_t resent = 0;
    // There are more to send again than the answer had room for.
    bool is_cut = false;
  };
  // Sends again what the worker was given and does not know of, as far as there is room. Returns how many leases it
  // has.
  absl::StatusOr<Held> Resend(const v1::SyncRequest& request, const WorkerProfile& worker, absl::Time now,
                              v1::SyncResponse& response);
  // Leases up to `want` tasks. True if there was no room for as many. Looks only at rounds to which work has come since
  // the worker was last told all there was.
  absl::StatusOr<bool> Grant(const WorkerProfile& worker, const std::string& poll_id, int32_t want, absl::Time arrival,
                             absl::Time now, v1::SyncResponse& response);
  // The same of one round, whose requirements the worker fulfils as `match` says. How many it were.
  absl::StatusOr<int32_t> LeaseFrom(LiveRound& round, const RequirementIndex::Match& match, const WorkerProfile& worker,
                                    const std::string& poll_id, int32_t want, absl::Time arrival, absl::Time now,
                                    v1::SyncResponse& response);
  // No lease of the round's is larger on the wire.
  int64_t LeaseBytesMax(const LiveRound& round) const;
  v1::Lease ToLease(const LiveRound& round, const TaskRecord& task, absl::Time arrival) const;

  void Park(const v1::SyncRequest& request, CallId call, const WorkerProfile& worker, int32_t want, absl::Time now,
            Reply<v1::SyncResponse> reply);
  bool HasRoomToPark(const v1::SyncRequest& request, const std::string& population) const;
  // Ends an older wait of the same worker.
  void Supersede(const std::string& population, const WorkerName& worker);
  // Looks at the calls for which there may be an answer: a bounded number in each batch, the others in the next, which
  // comes at once. What of them is found without looking at the others.
  void ServeParked(absl::Time now);
  // In turn: whose token is void, whose round was closed, whose worker was drained, whose time is over, and for whose
  // population there is work. Each takes from `left` how many calls it has looked at.
  void SendAway(int& left);
  void TellOfClosed(absl::Time now, int& left);
  void TellOfDrain(absl::Time now, int& left);
  void EndWaits(absl::Time now, int& left);
  void HandOut(absl::Time now, int& left);
  // True if it was answered, and is gone.
  bool AnswerParked(ParkedList::iterator parked, absl::Time now);
  // Work has come to its population since it last looked.
  bool HasNewWork(const Parked& parked) const;
  // Nothing if the call stays parked.
  std::optional<absl::StatusOr<v1::SyncResponse>> TryAnswerParked(const Parked& parked, bool may_have_work,
                                                                  absl::Time now);
  ParkedList::iterator Unpark(ParkedList::iterator parked);
  void ExpireLeases(absl::Time now, absl::Time read_until);
  bool HasQueued(const RoundId& id);
  // The round's requirements that the worker fulfils, or some of them. Takes what it looks at from `candidates_left`.
  RequirementIndex::Match MatchOf(const WorkerProfile& worker, const LiveRound& round, int64_t& candidates_left);
  void DueAt(absl::Time time) { due_time_ = std::min(due_time_, time); }

  CoreContext& context_;
  RoundManager& rounds_;
  WorkerRegistry& workers_;
  LogQuota stops_;
  ContributionIntake intake_;
  LeaseRoom lease_room_;
  Scheduler scheduler_;

  // Longest waiting first.
  ParkedList parked_;
  PopulationShare num_parked_;
  PopulationShare parked_bytes_;
  std::map<std::pair<std::string, WorkerName>, ParkedList::iterator> parked_by_worker_;
  std::unordered_map<CallId, ParkedList::iterator> parked_by_call_;
  int64_t num_ever_parked_ = 0;
  // Those that want tasks, by population. None is empty.
  std::map<std::string, Wanting> wanting_;
  // By `until` and number.
  std::map<std::pair<absl::Time, int64_t>, ParkedList::iterator> by_until_;
  // By the round of a lease that is held, and number.
  std::map<std::pair<RoundId, int64_t>, ParkedList::iterator> by_held_;
  // RoundManager::work_version() when all parked calls that work had come for had been looked at.
  int64_t served_version_ = -1;
  // There are more to look at.
  bool has_more_parked_ = false;
  // Tokens that have become void, until nobody is parked under them any more.
  std::set<TokenId> void_tokens_;
  std::map<std::string, Rates> rates_;
  std::set<RoundId> closed_rounds_;
  std::set<std::pair<std::string, WorkerName>> drain_changed_;
  // No lease ends and no delayed task becomes available before this.
  absl::Time due_time_ = absl::InfinitePast();
  bool is_draining_ = false;
};

}  // namespace sheaf
