// LiveRounds: the rounds that have not ended, as the core holds them in memory, and what is counted over all of them.
//
//   RETURN_IF_ERROR(rounds.CheckRoom("default", 100));      // Before one more round of 100 tasks.
//   LiveRound& round = rounds.Add(std::move(restored));
//   LiveRound* found = rounds.Find(id);                     // Null once it has ended.
//   for (const RoundId& due : rounds.TakeDue(now)) LogInfo("the deadline of round {} has come", due);
//   std::unique_ptr<LiveRound> ended = rounds.Remove(id);
//
// Owns the rounds. Nothing is removed within an event: what Find gave stays until it returns. Not thread-safe: the
// core's.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/core/limits/limits.h"
#include "server/core/limits/population_share.h"
#include "server/core/rounds/live_round.h"
#include "server/core/rounds/queue_figures.h"
#include "server/core/rounds/round_work.h"

namespace sheaf {

class LiveRounds {
 public:
  using ById = std::map<RoundId, std::unique_ptr<LiveRound>>;

  // Both outlive this.
  LiveRounds(const Limits& limits, CoreFigures& figures) : limits_(limits), work_(by_id_), queue_(figures) {}

  LiveRound& Add(std::unique_ptr<LiveRound> round);
  // It must be there.
  std::unique_ptr<LiveRound> Remove(const RoundId& id);
  // Null if it has ended or never was.
  LiveRound* Find(const RoundId& id);
  const ById& all() const { return by_id_; }
  // The one that continues it, as long as that takes tasks. Null if there is none.
  LiveRound* SuccessorOf(const RoundId& id);
  // Some round of this population is live.
  bool HasAny(const std::string& population) const { return num_rounds_.Of(population) > 0; }

  // And some of those was announced, whether it has opened by now or not.
  bool HasAnnounced(const std::string& population) const { return num_announced_.Of(population) > 0; }

  // RESOURCE_EXHAUSTED, naming the limit, if there is no room for one more round of so many tasks in this population.
  absl::Status CheckRoom(const std::string& population, int64_t num_tasks) const;

  RoundWork& work() { return work_; }
  const RoundWork& work() const { return work_; }

  // Whoever changes a round or its tasks says so here.
  QueueFigures& queue() { return queue_; }

  // The round is among those that TakeDue gives when its deadline has come. Add does this for those that wait for one.
  void AwaitDeadline(const LiveRound& round) { deadlines_.insert({round.deadline_time, round.id}); }
  // A deadline that is awaited comes at another time.
  void MoveDeadline(LiveRound& round, absl::Time deadline_time);
  // Those whose deadline has come by `until`, once each; some may have closed before it.
  std::vector<RoundId> TakeDue(absl::Time until);
  absl::Time NextDeadline() const { return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first; }

  struct Carried {
    int64_t num_tasks = 0;
    // Of these, those with a second lease.
    int64_t num_second = 0;
  };
  void OnCarriedOver(LiveRound& from, LiveRound& to, const Carried& carried);
  // It has so many tasks.
  void SetNumTasks(LiveRound& round, int64_t num_tasks);

  // So many more bytes, or fewer, lie in the round's spool on disk.
  void CountSpooled(LiveRound& round, int64_t bytes);
  const PopulationShare& spooled_bytes() const { return spooled_bytes_; }

 private:
  const Limits& limits_;
  ById by_id_;
  // A round, and one that continues it: there may be several, of which one takes tasks.
  std::set<std::pair<RoundId, RoundId>> successors_;
  RoundWork work_;
  // Of those that wait for theirs, and perhaps of some that have closed.
  std::set<std::pair<absl::Time, RoundId>> deadlines_;
  PopulationShare num_rounds_;
  PopulationShare num_announced_;
  PopulationShare num_tasks_;
  PopulationShare spooled_bytes_;
  QueueFigures queue_;
};

}  // namespace sheaf
