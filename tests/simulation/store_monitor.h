// StoreMonitor: watches every change the server makes to the task store, and holds it to what must be true after each:
// states move only along the table of transitions.h, counts equal a recount, a contribution is taken only from the
// holder and only while its round collects, leases end only by right and are renewed by progress, rounds are sealed
// only when it is time, nothing crosses populations, limits hold, what is final stays as it is until it is deleted, and
// only that is deleted whose time has come; a task that is carried over keeps its leases, goes on in one round, and is
// given to nobody else; an announced round is opened once, with one broadcast, and its deadline counts from then. It
// keeps an image of what it saw last, also of rounds that were deleted since.
#pragma once

#include <functional>
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
  // Called when it is durable that a round has ended.
  void set_on_ended(std::function<void(const RoundId&)> on_ended) { on_ended_ = std::move(on_ended); }

  // Whether what happens now is of the server that owns the store. What another does to its own memory of it, which it
  // can never commit, is no change.
  void SetIsOwners(bool is_owners) { is_owners_ = is_owners; }
  bool is_owners() const { return is_owners_; }

  void OnBegin();
  void OnCommit();
  void OnRollback();

  void OnCreateRound(const TaskStore::CreateRoundParams& params, const TaskStore::CreateRoundResult& result);
  void OnLease(const TaskStore::LeaseTasksParams& params, const std::vector<TaskRecord>& leased);
  void OnLeaseAgain(const TaskStore::LeaseAgainParams& params, const std::vector<TaskRecord>& leased);
  void OnMove(const TaskStore::MoveRoundParams& params);
  void OnCarryOver(const TaskStore::CarryOverParams& params, const std::vector<TaskRecord>& carried);
  void OnRenew(const TaskStore::RenewLeaseParams& params, const TaskRecord& task);
  void BeforeEndAttempt(const TaskStore::EndAttemptParams& params);
  void OnEndAttempt(const TaskStore::EndAttemptParams& params);
  void OnContribution(const TaskStore::RecordContributionParams& params, const ContributionRecord& record);
  void OnForget(const RoundId& round, int64_t count);
  void OnDelete(const TaskStore::DeleteEndedRoundsParams& params, const TaskStore::DeletedRounds& deleted);
  // Another operation changed something in this round.
  void OnChange(std::string_view operation, const RoundId& round);
  // Something is written to this round's spool.
  void OnSpool(const RoundId& round);
  // Once a second: what time alone, or the end of the last task, brings about must have happened, if the server could.
  void CheckTimely(absl::Time now, bool server_is_well);

  // A token, whose it is, and the latest end its lease ever had.
  struct Grant {
    TaskId task;
    WorkerName worker;
    absl::Time expire_time;
    absl::Time attempt_deadline_time;
  };
  // Null if this token was never granted.
  const Grant* FindGrant(const std::string& token) const;
  const v1::RoundSpec* FindSpec(const RoundId& round) const;
  bool WasDeleted(const RoundId& round) const;
  // As it was last, also of a round that was deleted since; there must have been one.
  RoundState StateOf(const RoundId& round) const { return rounds_.at(round).state; }
  // When it was opened; never, if it was not announced, or not opened yet.
  absl::Time OpenTimeOf(const RoundId& round) const { return rounds_.at(round).open_time; }
  const std::string& BroadcastOf(const RoundId& round) const { return rounds_.at(round).spec.broadcast_digest(); }
  // Rounds that have not ended, and the digests of their broadcasts, and of those from which tasks began that they took
  // over, and of what those are patches of.
  int64_t num_live() const;
  std::vector<std::string> LiveBroadcasts() const;
  struct LeaseImage {
    WorkerName worker;
    LeaseToken token;
    absl::Time expire_time;
    absl::Time attempt_deadline_time;
    int64_t progress = 0;
  };
  struct TaskImage : LeaseImage {
    TaskState state = TaskState::kQueued;
    std::optional<LeaseImage> second;
    // Of a task that is leased, the lease of this token; null if there is none.
    const LeaseImage* LeaseOf(const LeaseToken& its_token) const {
      if (state != TaskState::kLeased) return nullptr;
      if (token == its_token) return this;
      return second && second->token == its_token ? &*second : nullptr;
    }
    int32_t num_attempts = 0;
    int32_t num_failed = 0;
    int32_t num_lost = 0;
    std::optional<TaskId> origin;
    std::optional<TaskId> carried_to;
  };
  // As it was last, also of a round that was deleted since. Null if there never was such a task.
  const TaskImage* FindTask(const TaskId& task) const;
  // Where the task of this name is by now, and whether a round that it came through was deleted.
  struct Place {
    TaskId id;
    bool is_traceable = true;
  };
  Place PlaceOf(const TaskId& name) const;
  // Null if there never was such a round.
  const std::string* FindRequestId(const RoundId& round) const;
  // A crash happened since the round was last seen whole.
  void NoteCrash() { has_crashed_ = true; }
  void NoteGracefulStop() { has_crashed_ = false; }
  // A server took up what was live.
  void NoteRecovered();

 private:
  struct RoundImage {
    v1::RoundSpec spec;
    std::string population;
    std::string request_id;
    absl::Time create_time;
    absl::Time deadline_time;
    absl::Time open_time = absl::InfiniteFuture();
    absl::Time end_time;
    bool is_deleted = false;
    RoundState state = RoundState::kCollecting;
    int64_t version = 0;
    TaskCounts counts;
    int64_t num_contributions = 0;
    std::vector<TaskImage> tasks;
    // Beats at which something of it was overdue.
    int num_overdue = 0;
  };
  void NoteGrants(const WorkerName& worker, const RoundId& id, absl::Time now, const std::vector<TaskRecord>& leased);
  void CheckShare(const WorkerName& worker, const RoundId& id);
  // A round that continues another.
  void CheckContinues(const RoundId& id, const v1::RoundSpec& spec);
  void CheckSecondLease(std::string_view operation, const TaskImage& before, const TaskRecord& now);
  // What should have happened to it by `now`; empty if nothing.
  static std::string OverdueOf(const RoundImage& round, absl::Time now);

  RoundImage* Find(const RoundId& round);
  // Compares what the store shows now with the image, and takes it as the new one.
  void Look(std::string_view operation, const RoundId& round);
  void CheckRound(std::string_view operation, const RoundImage& image, const RoundRecord& record);
  void CheckTask(std::string_view operation, const RoundImage& round, const TaskImage& before, const TaskRecord& now);
  void NoteOpening(const TaskStore::MoveRoundParams& params, RoundImage& round);
  void CheckSealing(const RoundId& id, const RoundImage& round, absl::Time now);
  void CheckCounts(const RoundRecord& record, const std::vector<TaskRecord>& tasks);

  TaskStore* store_;
  Ledger& ledger_;
  Journal& journal_;
  Statistics& statistics_;
  std::map<RoundId, RoundImage> rounds_;
  // As they were when the batch began; nothing for those it created.
  std::map<RoundId, std::optional<RoundImage>> before_batch_;
  std::map<std::string, Grant> grants_;
  // In this batch.
  int64_t num_carried_ = 0;
  std::function<void(const RoundId&)> on_ended_ = [](const RoundId&) {};
  bool has_crashed_ = false;
  bool is_owners_ = true;
};

}  // namespace sheaf::simulation
