// WorkerRetention: forgets workers that were not seen for long and, where there are too many others, those of the
// populations that have most, the ones first that were not seen for the longest. A part in each batch, of as many
// records whatever their number, so that nobody waits for it.
//
//   retention.Tick(now);
//
// It looks through the records of the store, page by page: once to delete the old ones and to count the rest by
// population; and, if these are too many, once more to collect those to delete. Whoever calls meanwhile stays: the
// store deletes no worker that was seen since it was looked at, and none that holds a task.
//
// Runs in the core's thread, inside a batch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/core/batches/core_context.h"

namespace sheaf {

class WorkerRetention {
 public:
  // Outlives this.
  explicit WorkerRetention(CoreContext& context) : context_(context) {}

  void Tick(absl::Time now);
  absl::Time NextTick() const { return due_time_; }

 private:
  using WorkerAge = TaskStore::WorkerAge;
  enum class Phase { kCounting, kCollecting, kDeleting, kForgetting };
  // Of one population, one to `num_max` that were not seen for the longest: a heap with the youngest in front.
  struct Oldest {
    int64_t num_max = 0;
    std::vector<WorkerAge> workers;
  };

  // Does a part of the phase and takes what it cost from `work_left`; true after the last part of the last phase.
  absl::StatusOr<bool> Step(absl::Time now, int64_t& work_left);
  absl::Status CountSome(absl::Time now, int64_t& work_left);
  absl::Status CollectSome(int64_t& work_left);
  absl::Status DeleteSome(int64_t& work_left);
  bool ForgetSome(int64_t& work_left);

  // At most `limit` workers after the cursor.
  absl::StatusOr<std::vector<WorkerAge>> ReadPage(int64_t limit);
  void BeginPhase(Phase phase);
  void Count(const std::string& population);
  // Decides how many each population may lose. Returns false if there are not too many.
  bool FindSurplus();
  // The worker's population's; null if it loses none.
  Oldest* FindOldest(const std::string& population);
  absl::StatusOr<std::vector<WorkerAge>> Delete(const std::vector<WorkerAge>& workers, int64_t& work_left);

  CoreContext& context_;
  absl::Time due_time_ = absl::InfinitePast();
  Phase phase_ = Phase::kCounting;
  WorkerAge cursor_;
  int64_t num_deleted_ = 0;

  // By population. 0 once it is known that it loses none.
  std::map<std::string, int64_t> counts_;
  // How many populations have as many workers. It has few rows: n workers have at most sqrt(2n) different counts.
  std::map<int64_t, int64_t> num_populations_with_;
  int64_t num_workers_ = 0;

  // What each population keeps for certain, and how many of those with one more lose none.
  int64_t kept_max_ = 0;
  int64_t num_spared_ = 0;
  int64_t num_surplus_ = 0;
  // How many more may be collected.
  int64_t num_wanted_ = 0;
  // There are more to delete than are collected at once.
  bool is_more_due_ = false;
  std::map<std::string, Oldest> collected_;
};

}  // namespace sheaf
