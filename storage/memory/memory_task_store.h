// MemoryTaskStore: the TaskStore's promises as plain code over ordered containers, nothing durable. The
// executable specification: where another store answers differently, the other is wrong.
//
//   MemoryTaskStore memory;
//   TaskStore& store = memory;   // The server's core, simulations and tests use it as any.
//
// A batch keeps the images of the rows it changes; rolling back puts them back, newest first. Every change goes through
// one Put function per kind of row, which keeps the image and the indexes. Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/key_hash.h"
#include "storage/arguments.h"
#include "storage/single_leases.h"
#include "storage/task_store.h"

namespace sheaf {

class MemoryTaskStore : public TaskStore {
 public:
  absl::Status BeginBatch() override;
  absl::Status CommitBatch() override;
  void RollbackBatch() override;

  absl::Status StageTasks(const StageTasksParams& params) override;
  absl::StatusOr<CreateRoundResult> CreateRound(const CreateRoundParams& params) override;
  absl::StatusOr<RoundRecord> GetRound(const RoundId& id) override;
  absl::StatusOr<TaskCounts> CountTasks(const RoundId& id) override;
  std::optional<absl::Time> FirstAvailable(const RoundId& id) const override;
  absl::StatusOr<std::vector<RoundRecord>> ListRounds(const ListRoundsParams& params) override;
  absl::StatusOr<RoundRecord> MoveRound(const MoveRoundParams& params) override;
  absl::StatusOr<std::vector<TaskRecord>> CarryOver(const CarryOverParams& params) override;
  absl::StatusOr<BlobUse> GetBlobUse(const std::string& digest) override;
  absl::StatusOr<std::vector<std::string>> ListFormerBroadcasts() override;

  absl::StatusOr<std::vector<TaskRecord>> LeaseTasks(const LeaseTasksParams& params) override;
  absl::StatusOr<std::vector<TaskRecord>> LeaseAgain(const LeaseAgainParams& params) override;
  absl::StatusOr<absl::Time> FirstLeaseTime(const RoundId& round, absl::Time after) override;
  absl::StatusOr<std::vector<TaskRecord>> ListLeases(const std::string& population, const WorkerName& worker) override;
  absl::StatusOr<TaskRecord> RenewLease(const RenewLeaseParams& params) override;
  absl::StatusOr<std::vector<TaskRecord>> ListExpired(absl::Time now, int limit) override;
  absl::StatusOr<TaskRecord> EndAttempt(const EndAttemptParams& params) override;
  absl::StatusOr<TaskRecord> RequeueTask(const RequeueTaskParams& params) override;
  absl::StatusOr<bool> LimitTimes(const LimitTimesParams& params) override;

  absl::StatusOr<ContributionRecord> RecordContribution(const RecordContributionParams& params) override;
  absl::StatusOr<std::vector<ContributionRecord>> ListContributions(const RoundId& round, int64_t after,
                                                                    int limit) override;
  absl::Status SaveCheckpoint(const SaveCheckpointParams& params) override;
  absl::StatusOr<int64_t> ForgetContributionsAfterCheckpoint(const RoundId& round, absl::Time now) override;

  absl::StatusOr<TaskRecord> GetTask(const TaskId& id) override;
  absl::StatusOr<TaskRecord> GetTaskState(const TaskId& id) override;
  std::optional<TaskId> PlaceOf(const TaskId& name) const override;
  absl::StatusOr<std::vector<AttemptRecord>> ListAttempts(const TaskId& id) override;
  absl::StatusOr<std::vector<TaskRecord>> ListTasks(const ListTasksParams& params) override;
  absl::StatusOr<std::optional<TaskId>> SkipTasks(const ListTasksParams& params) override;
  absl::StatusOr<QueueRecord> DescribeQueue(const std::string& population, absl::Time now) override;
  absl::StatusOr<std::vector<std::string>> ListRequirements(const RoundId& round) override;
  absl::StatusOr<std::vector<int64_t>> CountQueued(const RoundId& round) override;
  absl::StatusOr<absl::Time> NextDueTime(absl::Time now) override;

  absl::StatusOr<WorkerRecord> SawWorker(const SawWorkerParams& params) override;
  absl::StatusOr<std::vector<WorkerRecord>> ListWorkers(const ListWorkersParams& params) override;
  absl::StatusOr<WorkerRecord> SetWorkerDraining(const SetWorkerDrainingParams& params) override;

  absl::StatusOr<DeletedRounds> DeleteEndedRounds(const DeleteEndedRoundsParams& params) override;
  absl::StatusOr<std::vector<WorkerAge>> ListWorkerAges(const ListWorkerAgesParams& params) override;
  absl::StatusOr<std::vector<WorkerAge>> DeleteWorkers(std::span<const WorkerAge> workers) override;
  absl::StatusOr<CreateTokenResult> CreateToken(const TokenRecord& token) override;
  absl::StatusOr<TokenRecord> RevokeToken(const RevokeTokenParams& params) override;
  absl::Status DeleteToken(const TokenId& id) override;
  absl::StatusOr<std::vector<TokenRecord>> ListTokens(const ListTokensParams& params) override;

  Info GetInfo() const override { return {.engine = "memory"}; }
  absl::StatusOr<std::vector<ServerRecord>> ListServers(const ListServersParams& /*params*/) override {
    return std::vector<ServerRecord>();
  }
  absl::StatusOr<ServerRecord> SetServerDraining(const SetServerDrainingParams& params) override {
    return NoSuchServer(params.server);
  }

 private:
  // What a submitter wrote stays out of the record that changes, so that the images of a batch are small.
  struct Task {
    TaskRecord record;
    NewTask input;
    std::vector<AttemptRecord> attempts;
    // Where it was carried over from.
    std::optional<TaskId> from;
  };
  struct Round {
    RoundRecord record;
    std::string spec;
    std::string aggregate_digest;
    std::string checkpoint_progress;
    // What a batch can take back refers to them while others are added.
    std::deque<Task> tasks;
    std::vector<ContributionRecord> contributions;
    // Indexes of QUEUED tasks by requirement.
    std::map<std::string, std::set<int32_t>> queued;
    // How many of them are available from each time on; none is 0.
    std::map<absl::Time, int64_t> queued_since;
    // Tasks that a worker holds or has completed.
    std::map<WorkerName, int64_t> taken;
    SingleLeases single_leases;
  };
  using WorkerKey = std::pair<std::string, WorkerName>;

  Round* FindRound(const RoundId& id);
  Task* FindTask(const TaskId& id);
  // FAILED_PRECONDITION or NOT_FOUND unless this token is of one of the task's leases.
  absl::StatusOr<Task*> FindLease(const TaskId& id, const LeaseToken& token);
  static RoundRecord Show(const Round& round);
  static TaskRecord Show(const Task& task);
  // Without what its submitter wrote.
  static TaskRecord ShowState(const Task& task);
  // Calls visit(id, task) for the tasks behind `params.after` of the params' round and population, in order, until it
  // returns false.
  template <typename Visit>
  void ForEachTask(const ListTasksParams& params, Visit visit);

  // The only ways to change something.
  void PutRound(Round& round, RoundRecord record);
  void PutTask(Round& round, Task& task, TaskRecord record);
  void PutAttempts(Task& task, std::vector<AttemptRecord> attempts);
  void PutWorker(const WorkerKey& key, const WorkerRecord& record);
  void EraseWorker(const WorkerKey& key);
  void Index(Round& round, const TaskRecord& task);
  void Unindex(Round& round, const TaskRecord& task);
  void Index(const RoundRecord& round);
  void Unindex(const RoundRecord& round);
  void PutToken(const TokenRecord& token);
  void EraseToken(const TokenId& id);

  struct AttemptEnding {
    AttemptOutcome outcome = AttemptOutcome::kCancelled;
    std::string error = {};
    std::string timings = {};
    int64_t bytes_up = 0;
    absl::Time now;
  };
  void OpenAttempt(Task& task, AttemptRecord attempt);
  void PutEnding(Task& task, int32_t number, const AttemptEnding& ending);
  // Ends the attempt of the lease in the fields of `task`, as somebody sees it, and returns it without that lease.
  TaskRecord CloseAttempt(Task& task, TaskRecord seen, const AttemptEnding& ending);
  // Ends all that run as CANCELLED.
  TaskRecord CancelAttempts(Task& task, const std::string& error, absl::Time now);
  // Most tasks that this worker may still take.
  static int64_t NumLeft(const Round& round, const WorkerName& worker, int32_t per_worker_max, size_t wanted);
  // Puts `task` where `next` says, with `round`'s counts and version following.
  void MoveTask(Round& round, Task& task, TaskRecord next, RoundRecord& counts);
  void CountForWorker(const Round& round, const WorkerName& worker, int64_t WorkerRecord::*counter, int64_t by);

  bool is_in_batch_ = false;
  std::vector<std::function<void()>> undo_;

  // Adds tasks that are available from `create_time` on.
  static void AddTasks(const RoundId& id, absl::Time create_time, std::span<const NewTask> tasks, Round& round);

  // Where LEASED tasks are by now that were carried over.
  std::map<TaskId, TaskId> places_;
  std::map<RoundId, Round> rounds_;
  // Rounds to come, which have nothing but tasks.
  std::map<RoundId, Round> staged_;
  // By create_time.
  std::map<std::pair<absl::Time, RoundId>, Round*> rounds_by_age_;
  std::map<std::string, RoundId> requests_;
  std::map<WorkerKey, WorkerRecord> workers_;
  // The same.
  std::map<std::pair<WorkerName, std::string>, const WorkerRecord*> workers_by_name_;
  std::map<TokenId, TokenRecord> tokens_;
  std::unordered_map<std::string, TokenId, KeyHash> token_requests_;
  std::unordered_set<std::string, KeyHash> token_hashes_;

  std::set<std::pair<WorkerKey, TaskId>> leases_;
  // And whether it is the second lease.
  std::set<std::tuple<absl::Time, TaskId, bool>> expiries_;
  std::set<std::pair<absl::Time, TaskId>> availabilities_;
  std::set<std::pair<absl::Time, RoundId>> deadlines_;
};

}  // namespace sheaf
