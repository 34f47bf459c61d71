#include "tests/simulation/crashing_task_store.h"

namespace sheaf::simulation {
namespace {

// Between any two operations the server may be gone.
template <typename Operation>
auto Between(CrashPoint& point, StoreOperation name, Operation operation) {
  point.PassBefore(name);
  auto result = operation();
  point.PassAfter(name);
  return result;
}

}  // namespace

// --- Batches -------------------------------------------------------------------------------------

absl::Status CrashingTaskStore::BeginBatch() {
  return Between(point_, StoreOperation::kBeginBatch, [&] {
    absl::Status status = inner_.BeginBatch();
    is_in_batch_ = status.ok();
    has_written_ = false;
    if (status.ok()) monitor_.OnBegin();
    return status;
  });
}

absl::Status CrashingTaskStore::CommitBatch() {
  // A crash after it: it is durable, and nobody has heard of it.
  return Between(point_, StoreOperation::kCommitBatch, [&]() -> absl::Status {
    if (point_.disk_is_full && has_written_) {
      Drop();
      return absl::ResourceExhaustedError("the disk is full");
    }
    absl::Status status = inner_.CommitBatch();
    is_in_batch_ = false;
    const bool is_committed = status.ok() || (was_committed_ && was_committed_());
    is_committed ? monitor_.OnCommit() : monitor_.OnRollback();
    return status;
  });
}

void CrashingTaskStore::RollbackBatch() {
  point_.PassBefore(StoreOperation::kRollbackBatch);
  Drop();
  point_.PassAfter(StoreOperation::kRollbackBatch);
}

void CrashingTaskStore::Drop() {
  inner_.RollbackBatch();
  is_in_batch_ = false;
  monitor_.OnRollback();
}

// --- What writes ---------------------------------------------------------------------------------

absl::Status CrashingTaskStore::StageTasks(const StageTasksParams& params) {
  return Between(point_, StoreOperation::kStageTasks, [&] {
    absl::Status status = inner_.StageTasks(params);
    has_written_ |= status.ok();
    return status;
  });
}

absl::StatusOr<TaskStore::CreateRoundResult> CrashingTaskStore::CreateRound(const CreateRoundParams& params) {
  return Between(point_, StoreOperation::kCreateRound, [&] {
    auto result = inner_.CreateRound(params);
    has_written_ |= result.ok() && result->created;
    if (result.ok() && result->created) monitor_.OnCreateRound(params, *result);
    return result;
  });
}

absl::StatusOr<RoundRecord> CrashingTaskStore::MoveRound(const MoveRoundParams& params) {
  return Between(point_, StoreOperation::kMoveRound, [&] {
    auto result = inner_.MoveRound(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnMove(params);
    return result;
  });
}

absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::CarryOver(const CarryOverParams& params) {
  return Between(point_, StoreOperation::kCarryOver, [&] {
    auto result = inner_.CarryOver(params);
    has_written_ |= result.ok() && !result->empty();
    if (result.ok()) monitor_.OnCarryOver(params, *result);
    return result;
  });
}

std::optional<TaskId> CrashingTaskStore::PlaceOf(const TaskId& name) const {
  return Between(point_, StoreOperation::kPlaceOf, [&] { return inner_.PlaceOf(name); });
}

absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::LeaseTasks(const LeaseTasksParams& params) {
  return Between(point_, StoreOperation::kLeaseTasks, [&] {
    auto result = inner_.LeaseTasks(params);
    has_written_ |= result.ok() && !result->empty();
    if (result.ok() && !result->empty()) monitor_.OnLease(params, *result);
    return result;
  });
}

absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::LeaseAgain(const LeaseAgainParams& params) {
  return Between(point_, StoreOperation::kLeaseAgain, [&] {
    auto result = inner_.LeaseAgain(params);
    has_written_ |= result.ok() && !result->empty();
    if (result.ok() && !result->empty()) monitor_.OnLeaseAgain(params, *result);
    return result;
  });
}

absl::StatusOr<absl::Time> CrashingTaskStore::FirstLeaseTime(const RoundId& round, absl::Time after) {
  return Between(point_, StoreOperation::kFirstLeaseTime, [&] { return inner_.FirstLeaseTime(round, after); });
}

absl::StatusOr<TaskRecord> CrashingTaskStore::RenewLease(const RenewLeaseParams& params) {
  return Between(point_, StoreOperation::kRenewLease, [&] {
    auto result = inner_.RenewLease(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnRenew(params, *result);
    return result;
  });
}

absl::StatusOr<TaskRecord> CrashingTaskStore::EndAttempt(const EndAttemptParams& params) {
  return Between(point_, StoreOperation::kEndAttempt, [&] {
    monitor_.BeforeEndAttempt(params);
    auto result = inner_.EndAttempt(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnEndAttempt(params);
    return result;
  });
}

absl::StatusOr<TaskRecord> CrashingTaskStore::RequeueTask(const RequeueTaskParams& params) {
  return Between(point_, StoreOperation::kRequeueTask, [&] {
    auto result = inner_.RequeueTask(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnChange("RequeueTask", params.task.round);
    return result;
  });
}

absl::StatusOr<bool> CrashingTaskStore::LimitTimes(const LimitTimesParams& params) {
  return Between(point_, StoreOperation::kLimitTimes, [&] {
    auto result = inner_.LimitTimes(params);
    has_written_ |= result.ok() && *result;
    if (result.ok() && *result) monitor_.OnChange("LimitTimes", params.round);
    return result;
  });
}

absl::StatusOr<ContributionRecord> CrashingTaskStore::RecordContribution(const RecordContributionParams& params) {
  return Between(point_, StoreOperation::kRecordContribution, [&] {
    auto result = inner_.RecordContribution(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnContribution(params, *result);
    return result;
  });
}

absl::Status CrashingTaskStore::SaveCheckpoint(const SaveCheckpointParams& params) {
  return Between(point_, StoreOperation::kSaveCheckpoint, [&] {
    has_written_ = true;
    return inner_.SaveCheckpoint(params);
  });
}

absl::StatusOr<int64_t> CrashingTaskStore::ForgetContributionsAfterCheckpoint(const RoundId& round, absl::Time now) {
  return Between(point_, StoreOperation::kForgetContributionsAfterCheckpoint, [&] {
    auto result = inner_.ForgetContributionsAfterCheckpoint(round, now);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnForget(round, *result);
    return result;
  });
}

absl::StatusOr<WorkerRecord> CrashingTaskStore::SawWorker(const SawWorkerParams& params) {
  return Between(point_, StoreOperation::kSawWorker, [&] {
    has_written_ = true;
    return inner_.SawWorker(params);
  });
}

absl::StatusOr<WorkerRecord> CrashingTaskStore::SetWorkerDraining(const SetWorkerDrainingParams& params) {
  return Between(point_, StoreOperation::kSetWorkerDraining, [&] {
    has_written_ = true;
    return inner_.SetWorkerDraining(params);
  });
}

absl::StatusOr<TaskStore::DeletedRounds> CrashingTaskStore::DeleteEndedRounds(const DeleteEndedRoundsParams& params) {
  return Between(point_, StoreOperation::kDeleteEndedRounds, [&] {
    has_written_ = true;
    auto result = inner_.DeleteEndedRounds(params);
    if (result.ok()) monitor_.OnDelete(params, *result);
    return result;
  });
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> CrashingTaskStore::ListWorkerAges(
    const ListWorkerAgesParams& params) {
  return Between(point_, StoreOperation::kListWorkerAges, [&] { return inner_.ListWorkerAges(params); });
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> CrashingTaskStore::DeleteWorkers(std::span<const WorkerAge> workers) {
  return Between(point_, StoreOperation::kDeleteWorkers, [&] {
    has_written_ = true;
    return inner_.DeleteWorkers(workers);
  });
}

absl::StatusOr<TaskStore::CreateTokenResult> CrashingTaskStore::CreateToken(const TokenRecord& token) {
  return Between(point_, StoreOperation::kCreateToken, [&] {
    has_written_ = true;
    return inner_.CreateToken(token);
  });
}
absl::StatusOr<TokenRecord> CrashingTaskStore::RevokeToken(const RevokeTokenParams& params) {
  return Between(point_, StoreOperation::kRevokeToken, [&] {
    has_written_ = true;
    return inner_.RevokeToken(params);
  });
}
absl::Status CrashingTaskStore::DeleteToken(const TokenId& id) {
  return Between(point_, StoreOperation::kDeleteToken, [&] {
    has_written_ = true;
    return inner_.DeleteToken(id);
  });
}

// --- What reads ----------------------------------------------------------------------------------

absl::StatusOr<RoundRecord> CrashingTaskStore::GetRound(const RoundId& id) {
  return Between(point_, StoreOperation::kGetRound, [&] { return inner_.GetRound(id); });
}
absl::StatusOr<TaskCounts> CrashingTaskStore::CountTasks(const RoundId& id) {
  return Between(point_, StoreOperation::kCountTasks, [&] { return inner_.CountTasks(id); });
}
absl::StatusOr<std::vector<RoundRecord>> CrashingTaskStore::ListRounds(const ListRoundsParams& params) {
  return Between(point_, StoreOperation::kListRounds, [&] { return inner_.ListRounds(params); });
}
absl::StatusOr<TaskStore::BlobUse> CrashingTaskStore::GetBlobUse(const std::string& digest) {
  return Between(point_, StoreOperation::kGetBlobUse, [&] { return inner_.GetBlobUse(digest); });
}
absl::StatusOr<std::vector<std::string>> CrashingTaskStore::ListFormerBroadcasts() {
  return Between(point_, StoreOperation::kListFormerBroadcasts, [&] { return inner_.ListFormerBroadcasts(); });
}
absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::ListLeases(const std::string& population,
                                                                      const WorkerName& worker) {
  return Between(point_, StoreOperation::kListLeases, [&] { return inner_.ListLeases(population, worker); });
}
absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::ListExpired(absl::Time now, int limit) {
  return Between(point_, StoreOperation::kListExpired, [&] { return inner_.ListExpired(now, limit); });
}
absl::StatusOr<std::vector<ContributionRecord>> CrashingTaskStore::ListContributions(const RoundId& round,
                                                                                     int64_t after, int limit) {
  return Between(point_, StoreOperation::kListContributions,
                 [&] { return inner_.ListContributions(round, after, limit); });
}
absl::StatusOr<TaskRecord> CrashingTaskStore::GetTask(const TaskId& id) {
  return Between(point_, StoreOperation::kGetTask, [&] { return inner_.GetTask(id); });
}
absl::StatusOr<TaskRecord> CrashingTaskStore::GetTaskState(const TaskId& id) {
  return Between(point_, StoreOperation::kGetTaskState, [&] { return inner_.GetTaskState(id); });
}
absl::StatusOr<std::vector<AttemptRecord>> CrashingTaskStore::ListAttempts(const TaskId& id) {
  return Between(point_, StoreOperation::kListAttempts, [&] { return inner_.ListAttempts(id); });
}
absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::ListTasks(const ListTasksParams& params) {
  return Between(point_, StoreOperation::kListTasks, [&] { return inner_.ListTasks(params); });
}
absl::StatusOr<std::optional<TaskId>> CrashingTaskStore::SkipTasks(const ListTasksParams& params) {
  return Between(point_, StoreOperation::kSkipTasks, [&] { return inner_.SkipTasks(params); });
}
absl::StatusOr<TaskStore::QueueRecord> CrashingTaskStore::DescribeQueue(const std::string& population, absl::Time now) {
  return Between(point_, StoreOperation::kDescribeQueue, [&] { return inner_.DescribeQueue(population, now); });
}
absl::StatusOr<std::vector<std::string>> CrashingTaskStore::ListRequirements(const RoundId& round) {
  return Between(point_, StoreOperation::kListRequirements, [&] { return inner_.ListRequirements(round); });
}
absl::StatusOr<std::vector<int64_t>> CrashingTaskStore::CountQueued(const RoundId& round) {
  return Between(point_, StoreOperation::kCountQueued, [&] { return inner_.CountQueued(round); });
}
absl::StatusOr<absl::Time> CrashingTaskStore::NextDueTime(absl::Time now) {
  return Between(point_, StoreOperation::kNextDueTime, [&] { return inner_.NextDueTime(now); });
}
absl::StatusOr<std::vector<TokenRecord>> CrashingTaskStore::ListTokens(const ListTokensParams& params) {
  return Between(point_, StoreOperation::kListTokens, [&] { return inner_.ListTokens(params); });
}
absl::StatusOr<std::vector<WorkerRecord>> CrashingTaskStore::ListWorkers(const ListWorkersParams& params) {
  return Between(point_, StoreOperation::kListWorkers, [&] { return inner_.ListWorkers(params); });
}

absl::StatusOr<std::vector<ServerRecord>> CrashingTaskStore::ListServers(const ListServersParams& params) {
  return Between(point_, StoreOperation::kListServers, [&] { return inner_.ListServers(params); });
}

absl::StatusOr<ServerRecord> CrashingTaskStore::SetServerDraining(const SetServerDrainingParams& params) {
  return Between(point_, StoreOperation::kSetServerDraining, [&] {
    has_written_ = true;
    return inner_.SetServerDraining(params);
  });
}

TaskStore::Info CrashingTaskStore::GetInfo() const {
  return Between(point_, StoreOperation::kGetInfo, [&] { return inner_.GetInfo(); });
}

}  // namespace sheaf::simulation
