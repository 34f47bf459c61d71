// StoreMonitor: watches every change the server makes to the task store, and holds it to what must be true after each:
// states move only along the table of transitions.h, counts equal a recount, a contribution is taken only from the
// holder and only while its round collects, leases end only by right, nothing crosses populations, limits hold, and
// what is final stays as it is. It keeps an image of what it saw last.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sheaf/v1/round.pb.h"
#include "storage/task_store.h"
#include "tests/simulation/journal.h"
#include "tests/simulation/statistics.h"

namespace sheaf::simulation {

class Ledger;

class StoreMonitor {
 public:
  // All outlive the monitor.
  StoreMonitor(TaskStore& store, Ledger& ledger, Journal& journal, Statistics& statistics)
      : store_(&store), ledger_(ledger), journal_(journal), statistics_(statistics) {}

  // The store was opened anew, after a crash.
  void set_store(TaskStore& store) { store_ = &store; }

  void OnBegin();
  void OnCommit();
  void OnRollback();

  void OnCreateRound(const TaskStore::CreateRoundParams& params, const TaskStore::CreateRoundResult& result);
  void OnLease(const TaskStore::LeaseTasksParams& params, const std::vector<TaskRecord>& leased);
  void OnRenew(const TaskRecord& task);
  void BeforeEndAttempt(const TaskStore::EndAttemptParams& params);
  void OnContribution(const TaskStore::RecordContributionParams& params, const ContributionRecord& record);
  void OnForget(const RoundId& round, int64_t count);
  // Another operation changed something in this round.
  void OnChange(std::string_view operation, const RoundId& round);
  // Something is written to this round's spool.
  void OnSpool(const RoundId& round);

  // A token, whose it is, and the latest end its lease ever had.
  struct Grant {
    TaskId task;
    WorkerName worker;
    absl::Time expire_time;
  };
  // Null if this token was never granted.
  const Grant* FindGrant(const std::string& token) const;
  const v1::RoundSpec* FindSpec(const RoundId& round) const;
  // A crash happened since the round was last seen whole.
  void NoteCrash() { has_crashed_ = true; }
  void NoteGracefulStop() { has_crashed_ = false; }

 private:
  struct TaskImage {
    TaskState state = TaskState::kQueued;
    LeaseToken token;
    absl::Time expire_time;
    absl::Time attempt_deadline_time;
    int32_t num_attempts = 0;
  };
  struct RoundImage {
    v1::RoundSpec spec;
    std::string population;
    RoundState state = RoundState::kCollecting;
    int64_t version = 0;
    TaskCounts counts;
    int64_t num_contributions = 0;
    std::vector<TaskImage> tasks;
  };

  RoundImage* Find(const RoundId& round);
  // Compares what the store shows now with the image, and takes it as the new one.
  void Look(std::string_view operation, const RoundId& round);
  void CheckRound(std::string_view operation, const RoundImage& image, const RoundRecord& record);
  void CheckTask(std::string_view operation, const RoundImage& round, const TaskImage& before, const TaskRecord& now);
  void CheckCounts(const RoundRecord& record, const std::vector<TaskRecord>& tasks);

  TaskStore* store_;
  Ledger& ledger_;
  Journal& journal_;
  Statistics& statistics_;
  std::map<RoundId, RoundImage> rounds_;
  // As they were when the batch began; nothing for those it created.
  std::map<RoundId, std::optional<RoundImage>> before_batch_;
  std::map<std::string, Grant> grants_;
  std::set<std::string> requests_;
  bool has_crashed_ = false;
};

}  // namespace sheaf::simulation
