// RoundWork: which live rounds may have tasks to hand out, and since when. Whoever looks for work and finds none need
// not look again until some may have come: workers, and the polls that wait for them, remember the version at which
// they last looked.
//
//   work.MayHaveCome(round);                              // A task of it is QUEUED again.
//   if (work.IsThereFor("default")) {                     // Else no round need be looked at.
//     for (const auto& [version, with_work] : *work.In("default")) LogInfo("{}", with_work->id);
//   }
//
// It may err on one side only: a round that has work is always among those of In(). Not thread-safe: the core's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/core/rounds/live_round.h"

namespace sheaf {

class RoundWork {
 public:
  // By version.
  using Rounds = std::map<int64_t, LiveRound*>;

  // `live` are all live rounds; outlives this.
  explicit RoundWork(const std::map<RoundId, std::unique_ptr<LiveRound>>& live) : live_(live) {}

  // Tasks that somebody could lease may have come to `round`.
  void MayHaveCome(LiveRound& round);
  // A task of `round` waits out a backoff until `time`.
  void WillCome(const LiveRound& round, absl::Time time);
  // The time of some of these may have come.
  void LookForDue(absl::Time now);
  // Tasks that waited before the server started are in no list. All of them are due by `until`: so long every round may
  // have work whenever it is asked.
  void ExpectRecovered(absl::Time until) { recovered_until_ = asked_time_ = until; }
  // The round is not live any more.
  void Forget(const LiveRound& round);

  // Grows whenever work may have come.
  int64_t version() const { return version_; }
  // A population's rounds that may have work. Null if there is none.
  const Rounds* In(const std::string& population) const;
  // Some task of this population may be there to lease. Takes no time for the others.
  bool IsThereFor(const std::string& population);

 private:
  const std::map<RoundId, std::unique_ptr<LiveRound>>& live_;
  int64_t version_ = 0;
  // Also some rounds that have none any more, until IsThereFor looks. None is empty.
  std::map<std::string, Rounds> by_population_;
  // Tasks that wait out a backoff: when it ends.
  std::set<std::pair<absl::Time, RoundId>> delayed_;
  absl::Time recovered_until_ = absl::InfinitePast();
  absl::Time asked_time_ = absl::InfinitePast();
};

}  // namespace sheaf
