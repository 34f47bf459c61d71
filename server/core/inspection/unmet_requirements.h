// UnmetRequirements: which requirements of live rounds no worker heard of lately fulfils, and how many tasks wait with
// them: what people ask who look at the queue, or at a round that does not go on.
//
//   unmet.OfPopulation("default", now, [](const absl::StatusOr<UnmetRequirements::Found>& found) {
//     if (found.ok()) LogInfo("{} tasks wait in vain", found->num_tasks);
//   });
//
// There may be many requirements and many workers. So it is looked for in slices of some milliseconds, one in a batch,
// whoever asks: others are served in between. One search serves all who ask the same while it is under way. It looks up
// the labels of each worker in each round's RequirementIndex: O(rounds * workers * labels + requirements), less where
// the first workers fulfil everything; after so many slices it ends with what it has found, and says so.
//
// Runs in the core's thread, inside a batch; so do the callbacks, perhaps before OfPopulation returns.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"
#include "server/core/rounds/live_rounds.h"
#include "server/core/workers/worker_registry.h"

namespace sheaf {

class UnmetRequirements {
 public:
  // A worker that has not called for this long is not counted on.
  static constexpr absl::Duration kSeenLately = absl::Minutes(2);

  // All outlive this.
  UnmetRequirements(CoreContext& context, LiveRounds& rounds, const WorkerRegistry& workers)
      : context_(context), rounds_(rounds), workers_(workers) {}

  struct Found {
    int64_t num_requirements = 0;
    // Of these the first, in their order.
    std::vector<std::string> requirements;
    // QUEUED, with any of them.
    int64_t num_tasks = 0;
    // There was too much to look at: others may be unmet, too.
    bool is_partial = false;
  };
  // RESOURCE_EXHAUSTED with a retry hint if too many ask; errors of the store.
  using Done = std::function<void(const absl::StatusOr<Found>&)>;
  // Of the rounds of a population that collect.
  void OfPopulation(const std::string& population, absl::Time now, Done done);
  // Of one round. Nothing if it does not collect.
  void OfRound(const RoundId& round, absl::Time now, Done done);

  // Answers everybody with what was found so far; from here on at once.
  void BeginDrain(absl::Time now);

 private:
  struct Search {
    std::string population;
    // Only this one; empty: all.
    RoundId only;
    std::vector<Done> askers;
    // Being looked at; empty before the first.
    RoundId round;
    // The last worker looked at for it.
    WorkerName worker;
    // Of its requirements.
    std::vector<bool> is_met;
    size_t num_met = 0;
    int num_slices = 0;
    Found found;
  };

  void Ask(const std::string& population, const RoundId& only, absl::Time now, Done done);
  // Looks on until the first search is done, and answers, or a slice is used up.
  void RunSlice(absl::Time now);
  // True if the search is done.
  absl::StatusOr<bool> Advance(Search& search, int64_t& steps, absl::Time now) const;
  // The next round to look at; null if there is none.
  const LiveRound* NextRound(const Search& search) const;
  // False if the steps did not suffice.
  bool LookThroughWorkers(const LiveRound& round, Search& search, int64_t& steps, absl::Time now) const;
  absl::Status FinishRound(const LiveRound& round, Search& search) const;
  void Finish(const absl::Status& status);

  CoreContext& context_;
  LiveRounds& rounds_;
  const WorkerRegistry& workers_;
  // The first is under way.
  std::deque<Search> searches_;
  int64_t num_askers_ = 0;
  bool is_posted_ = false;
  bool is_draining_ = false;
};

}  // namespace sheaf
