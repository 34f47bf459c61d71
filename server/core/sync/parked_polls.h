// ParkedPolls: Sync calls that wait until there is something to say: work for their worker, the end of a round of which
// it holds a lease, a change of its worker's service, or the end of their wait.
//
//   const bool has_room = polls.HasRoomFor(request, "default");
//   if (has_room) polls.Park(request, {.call = call, .worker = worker, .want = 4}, now, reply);
//   polls.Tick(now);                        // Answers those for whom there is something.
//   polls.Abandon(call);                    // Nobody waits for its answer any more.
//
// A worker has one at most. Of many, only those are looked at for which there may be an answer, a bounded number in
// each batch. Runs in the core's thread, inside a batch.
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
#include "server/core/access/identity.h"
#include "server/core/batches/call_id.h"
#include "server/core/batches/core_context.h"
#include "server/core/batches/reply.h"
#include "server/core/leases/lease_grants.h"
#include "server/core/leases/lease_renewal.h"
#include "server/core/limits/population_share.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/sync/pace.h"
#include "server/core/workers/worker_registry.h"
#include "sheaf/v1/work_service.pb.h"

namespace sheaf {

class ParkedPolls {
 public:
  // All outlive this.
  ParkedPolls(CoreContext& context, LiveRounds& rounds, WorkerRegistry& workers, LeaseGrants& grants,
              LeaseRenewal& renewal)
      : context_(context), rounds_(rounds), workers_(workers), grants_(grants), renewal_(renewal) {}

  // As many wait as may, or as much: see parked_polls_max, parked_poll_bytes_max and open_request_bytes_max.
  bool HasRoomFor(const v1::SyncRequest& request, const std::string& population) const;
  struct Poll {
    CallId call;
    const WorkerProfile& worker;
    // How many tasks it may be given, to run and to prepare.
    int32_t want = 0;
    int32_t want_announced = 0;
  };
  // The call waits until it is answered, as long as it asks for and poll_wait_max allows. The request need not live on.
  void Park(const v1::SyncRequest& request, const Poll& poll, absl::Time now, Reply<v1::SyncResponse> reply);
  // Ends an older wait of the same worker, which has called again.
  void Supersede(const std::string& population, const WorkerName& worker);
  // Nobody waits for this call's answer any more: if it is parked it ends with CANCELLED, and is granted nothing.
  void Abandon(CallId call);
  // The token is void: who waits under it is sent away, and granted nothing.
  void EndThoseOf(const TokenId& token);
  // The waits of this population's workers are over: they are answered at the next Tick, and call again. O(those).
  void EndThoseOf(const std::string& population, absl::Time now);
  // The leases of this round are void: workers that wait with one of them are told.
  void OnRoundClosed(const RoundId& round) { changed_rounds_.insert(round); }
  // Who holds a lease of this round may run: the same.
  void OnRoundOpened(const RoundId& round) { changed_rounds_.insert(round); }
  // A lease of this worker is void: if it waits, it is told.
  void OnLeaseCancelled(const std::string& population, const WorkerName& worker) { told_.insert({population, worker}); }
  // The worker's next answer says so; one that waits is answered at the next Tick.
  void OnDrainChanged(const std::string& population, const WorkerName& worker) { told_.insert({population, worker}); }

  // Looks at the calls for which there may be an answer: a bounded number in each batch, the others in the next, which
  // comes at once. What of them is found without looking at the others.
  void Tick(absl::Time now);
  absl::Time NextTick() const;

  // The server stops: from here on nobody waits and nobody is given work.
  void BeginDrain();
  bool is_draining() const { return is_draining_; }
  // For those who call while it does.
  Pace drain_pace() const { return drain_pace_; }

  int64_t Num(const std::string& population) const { return num_parked_.Of(population); }
  bool IsParked(const std::string& population, const WorkerName& worker) const {
    return by_worker_.contains({population, worker});
  }

 private:
  struct Parked {
    std::string population;
    WorkerName worker;
    // Of its population, among the figures.
    size_t slot = 0;
    std::string poll_id;
    int32_t want = 0;
    int32_t want_announced = 0;
    std::vector<v1::HeldLease> held;
    // Where their tasks were when the call came.
    std::set<RoundId> held_rounds = {};
    IdentityPtr caller;
    CallId call;
    // Grows from one to the next.
    int64_t number = 0;
    // Of the request on the wire: they count as open until it is answered.
    int64_t bytes = 0;
    // RoundWork::version() when it last looked for work.
    int64_t looked_at = 0;
    absl::Time arrival_time;
    absl::Time until;
    Reply<v1::SyncResponse> reply;
  };
  using List = std::list<Parked>;
  // By looked_at and number: who has not looked for the longest, and of those who waits longest.
  using Wanting = std::map<std::pair<int64_t, int64_t>, List::iterator>;

  List::iterator Unpark(List::iterator parked);
  // In turn: whose token is void, whose round was opened or closed, whose worker was drained, whose time is over, and
  // for whose population there is work. Each takes from `left` how many calls it has looked at.
  void SendAway(int& left);
  void TellOfRounds(absl::Time now, int& left);
  void TellOfNews(absl::Time now, int& left);
  void EndWaits(absl::Time now, int& left);
  void HandOut(absl::Time now, int& left);
  // True if it was answered, and is gone.
  bool Answer(List::iterator parked, absl::Time now);
  // Nothing if the call stays parked.
  std::optional<absl::StatusOr<v1::SyncResponse>> TryAnswer(const Parked& parked, bool may_have_work, absl::Time now);
  // Work has come to its population since it last looked.
  bool HasNewWork(const Parked& parked) const;

  CoreContext& context_;
  LiveRounds& rounds_;
  WorkerRegistry& workers_;
  LeaseGrants& grants_;
  LeaseRenewal& renewal_;

  // Longest waiting first.
  List parked_;
  PopulationShare num_parked_;
  PopulationShare bytes_;
  std::map<std::pair<std::string, WorkerName>, List::iterator> by_worker_;
  std::unordered_map<CallId, List::iterator> by_call_;
  int64_t num_ever_parked_ = 0;
  // Those that want tasks, by population. None is empty.
  std::map<std::string, Wanting> wanting_;
  // By `until` and number.
  std::map<std::pair<absl::Time, int64_t>, List::iterator> by_until_;
  // By the round of a lease that is held, and number.
  std::map<std::pair<RoundId, int64_t>, List::iterator> by_held_;
  // RoundWork::version() when all that work had come for had been looked at.
  int64_t served_version_ = -1;
  // There are more to look at.
  bool has_more_ = false;
  // Tokens that have become void, until nobody is parked under them any more.
  std::set<TokenId> void_tokens_;
  std::set<RoundId> changed_rounds_;
  std::set<std::pair<std::string, WorkerName>> told_;
  bool is_draining_ = false;
  Pace drain_pace_ = Pace::kAfterRestart;
};

}  // namespace sheaf
