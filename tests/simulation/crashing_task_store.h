// CrashingTaskStore: the store as the simulated server sees it. Each operation passes the crash point before and
// after; what it changed is shown to the monitor; a full disk refuses the commit.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "storage/task_store.h"
#include "tests/simulation/crash_point.h"
#include "tests/simulation/store_monitor.h"

namespace sheaf::simulation {

class CrashingTaskStore final : public TaskStore {
 public:
  // All outlive this.
  // `was_committed` says after a commit that failed whether it is durable all the same; null: never.
  CrashingTaskStore(TaskStore& inner, CrashPoint& point, StoreMonitor& monitor,
                    std::function<bool()> was_committed = nullptr)
      : inner_(inner), point_(point), monitor_(monitor), was_committed_(std::move(was_committed)) {}

  bool is_in_batch() const { return is_in_batch_; }

  absl::Status BeginBatch() override;
  absl::Status CommitBatch() override;
  void RollbackBatch() override;

  absl::Status StageTasks(const StageTasksParams& params) override;
  absl::StatusOr<CreateRoundResult> CreateRound(const CreateRoundParams& params) override;
  absl::StatusOr<RoundRecord> GetRound(const RoundId& id) override;
  absl::StatusOr<TaskCounts> CountTasks(const RoundId& id) override;
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

  absl::StatusOr<CreateTokenResult> CreateToken(const TokenRecord& token) override;
  absl::StatusOr<TokenRecord> RevokeToken(const RevokeTokenParams& params) override;
  absl::Status DeleteToken(const TokenId& id) override;
  absl::StatusOr<std::vector<TokenRecord>> ListTokens(const ListTokensParams& params) override;
  absl::StatusOr<WorkerRecord> SawWorker(const SawWorkerParams& params) override;
  absl::StatusOr<std::vector<WorkerRecord>> ListWorkers(const ListWorkersParams& params) override;
  absl::StatusOr<WorkerRecord> SetWorkerDraining(const SetWorkerDrainingParams& params) override;

  absl::StatusOr<DeletedRounds> DeleteEndedRounds(const DeleteEndedRoundsParams& params) override;
  absl::StatusOr<std::vector<WorkerAge>> ListWorkerAges(const ListWorkerAgesParams& params) override;
  absl::StatusOr<std::vector<WorkerAge>> DeleteWorkers(std::span<const WorkerAge> workers) override;

  Info GetInfo() const override;
  absl::StatusOr<ServerRecord> SetServerDraining(const SetServerDrainingParams& params) override;
  absl::StatusOr<std::vector<ServerRecord>> ListServers(const ListServersParams& params) override;

 private:
  // Nothing of the batch has happened.
  void Drop();

  TaskStore& inner_;
  CrashPoint& point_;
  StoreMonitor& monitor_;
  const std::function<bool()> was_committed_;
  bool is_in_batch_ = false;
  bool has_written_ = false;
};

}  // namespace sheaf::simulation
