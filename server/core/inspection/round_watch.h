// RoundWatch: GetRound calls that wait for a round to change.
//
//   watch.Get(request, call, caller, now, reply);      // Now, or when the etag that the request names is an old one.
//   watch.Tick(now);                                   // Answers those whose round has changed.
//   watch.Abandon(call);                               // Nobody waits for its answer any more.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <list>
#include <map>
#include <string>

#include "absl/time/time.h"
#include "server/core/access/identity.h"
#include "server/core/batches/call_id.h"
#include "server/core/batches/core_context.h"
#include "server/core/batches/reply.h"
#include "server/core/limits/population_share.h"
#include "server/core/rounds/live_rounds.h"
#include "sheaf/v1/round_service.pb.h"

namespace sheaf {

class RoundWatch {
 public:
  RoundWatch(CoreContext& context, LiveRounds& rounds) : context_(context), rounds_(rounds) {}

  // See RoundService.GetRound. RESOURCE_EXHAUSTED with a retry hint if it would have to wait and too many wait already.
  void Get(const v1::GetRoundRequest& request, CallId call, const IdentityPtr& caller, absl::Time now,
           Reply<v1::GetRoundResponse> reply);
  // Nobody waits for this call's answer any more: if it waits it ends with CANCELLED.
  void Abandon(CallId call);
  // The token is void: who waits under it is sent away.
  void EndWaitsOf(const TokenId& token);
  // Answers those whose round ended at once, those whose round changed after a moment, so that a busy
  // round costs its watchers a few answers per second and not one per task.
  void Tick(absl::Time now);
  absl::Time NextTick() const;
  // Answers everybody.
  void BeginDrain(absl::Time now);

 private:
  struct Waiting {
    CallId call;
    IdentityPtr caller;
    RoundId round;
    std::string population;
    std::string etag;
    absl::Time not_before;
    bool has_passed_moment = false;
    absl::Time until;
    Reply<v1::GetRoundResponse> reply;
  };
  // The newest versions of rounds, each read once while many waits are looked at.
  using Versions = std::map<RoundId, std::string>;
  bool IsDue(Waiting& waiting, Versions& versions, absl::Time now);

  CoreContext& context_;
  LiveRounds& rounds_;
  std::list<Waiting>::iterator Erase(std::list<Waiting>::iterator waiting);

  std::list<Waiting> waiting_;
  PopulationShare num_waiting_;
  absl::Time newest_tick_ = absl::InfinitePast();
  bool is_draining_ = false;
};

}  // namespace sheaf
