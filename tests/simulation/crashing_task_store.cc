#include "tests/simulation/crashing_task_store.h"

namespace sheaf::simulation {
namespace {

// Between any two operations the server may be gone.
template <typename Operation>
auto Between(CrashPoint& point, Operation operation) {
  point.Pass();
  auto result = operation();
  point.Pass();
  return result;
}

}  // namespace

// --- Batches -------------------------------------------------------------------------------------

absl::Status CrashingTaskStore::BeginBatch() {
  point_.Pass();
  absl::Status status = inner_.BeginBatch();
  is_in_batch_ = status.ok();
  has_written_ = false;
  if (status.ok()) monitor_.OnBegin();
  return status;
}

absl::Status CrashingTaskStore::CommitBatch() {
  point_.Pass();
  if (point_.disk_is_full && has_written_) {
    RollbackBatch();
    return absl::ResourceExhaustedError("the disk is full");
  }
  absl::Status status = inner_.CommitBatch();
  is_in_batch_ = false;
  status.ok() ? monitor_.OnCommit() : monitor_.OnRollback();
  // A crash here: it is durable, and nobody has heard of it.
  point_.Pass();
  return status;
}

void CrashingTaskStore::RollbackBatch() {
  inner_.RollbackBatch();
  is_in_batch_ = false;
  monitor_.OnRollback();
}

// --- What writes ---------------------------------------------------------------------------------

absl::StatusOr<TaskStore::CreateRoundResult> CrashingTaskStore::CreateRound(const CreateRoundParams& params) {
  return Between(point_, [&] {
    auto result = inner_.CreateRound(params);
    has_written_ |= result.ok() && result->created;
    if (result.ok() && result->created) monitor_.OnCreateRound(params, *result);
    return result;
  });
}

absl::StatusOr<RoundRecord> CrashingTaskStore::MoveRound(const MoveRoundParams& params) {
  return Between(point_, [&] {
    auto result = inner_.MoveRound(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnChange("MoveRound", params.round);
    return result;
  });
}

absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::LeaseTasks(const LeaseTasksParams& params) {
  return Between(point_, [&] {
    auto result = inner_.LeaseTasks(params);
    has_written_ |= result.ok() && !result->empty();
    if (result.ok() && !result->empty()) monitor_.OnLease(params, *result);
    return result;
  });
}

absl::StatusOr<TaskRecord> CrashingTaskStore::RenewLease(const RenewLeaseParams& params) {
  return Between(point_, [&] {
    auto result = inner_.RenewLease(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnRenew(*result);
    return result;
  });
}

absl::StatusOr<TaskRecord> CrashingTaskStore::EndAttempt(const EndAttemptParams& params) {
  return Between(point_, [&] {
    monitor_.BeforeEndAttempt(params);
    auto result = inner_.EndAttempt(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnChange("EndAttempt", params.task.round);
    return result;
  });
}

absl::StatusOr<TaskRecord> CrashingTaskStore::RequeueTask(const RequeueTaskParams& params) {
  return Between(point_, [&] {
    auto result = inner_.RequeueTask(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnChange("RequeueTask", params.task.round);
    return result;
  });
}

absl::StatusOr<bool> CrashingTaskStore::LimitTimes(const LimitTimesParams& params) {
  return Between(point_, [&] {
    auto result = inner_.LimitTimes(params);
    has_written_ |= result.ok() && *result;
    return result;
  });
}

absl::StatusOr<ContributionRecord> CrashingTaskStore::RecordContribution(const RecordContributionParams& params) {
  return Between(point_, [&] {
    auto result = inner_.RecordContribution(params);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnContribution(params, *result);
    return result;
  });
}

absl::Status CrashingTaskStore::SaveCheckpoint(const SaveCheckpointParams& params) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.SaveCheckpoint(params);
  });
}

absl::StatusOr<int64_t> CrashingTaskStore::ForgetContributionsAfterCheckpoint(const RoundId& round, absl::Time now) {
  return Between(point_, [&] {
    auto result = inner_.ForgetContributionsAfterCheckpoint(round, now);
    has_written_ |= result.ok();
    if (result.ok()) monitor_.OnForget(round, *result);
    return result;
  });
}

absl::StatusOr<WorkerRecord> CrashingTaskStore::SawWorker(const SawWorkerParams& params) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.SawWorker(params);
  });
}

absl::StatusOr<WorkerRecord> CrashingTaskStore::SetWorkerDraining(const std::string& population, const WorkerName& name,
                                                                  bool is_draining) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.SetWorkerDraining(population, name, is_draining);
  });
}

absl::StatusOr<TaskStore::DeletedRounds> CrashingTaskStore::DeleteEndedRounds(const DeleteEndedRoundsParams& params) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.DeleteEndedRounds(params);
  });
}

absl::StatusOr<int64_t> CrashingTaskStore::DeleteWorkers(absl::Time seen_before) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.DeleteWorkers(seen_before);
  });
}

absl::StatusOr<TaskStore::CreateTokenResult> CrashingTaskStore::CreateToken(const TokenRecord& token) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.CreateToken(token);
  });
}
absl::StatusOr<TokenRecord> CrashingTaskStore::RevokeToken(const RevokeTokenParams& params) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.RevokeToken(params);
  });
}
absl::Status CrashingTaskStore::DeleteToken(const TokenId& id) {
  return Between(point_, [&] {
    has_written_ = true;
    return inner_.DeleteToken(id);
  });
}

// --- What reads ----------------------------------------------------------------------------------

absl::StatusOr<RoundRecord> CrashingTaskStore::GetRound(const RoundId& id) {
  return Between(point_, [&] { return inner_.GetRound(id); });
}
absl::StatusOr<std::vector<RoundRecord>> CrashingTaskStore::ListRounds(const ListRoundsParams& params) {
  return Between(point_, [&] { return inner_.ListRounds(params); });
}
absl::StatusOr<TaskStore::BlobUse> CrashingTaskStore::GetBlobUse(const std::string& digest) {
  return Between(point_, [&] { return inner_.GetBlobUse(digest); });
}
absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::ListLeases(const WorkerName& worker) {
  return Between(point_, [&] { return inner_.ListLeases(worker); });
}
absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::ListExpired(absl::Time now, int limit) {
  return Between(point_, [&] { return inner_.ListExpired(now, limit); });
}
absl::StatusOr<std::vector<ContributionRecord>> CrashingTaskStore::ListContributions(const RoundId& round,
                                                                                     int64_t after, int limit) {
  return Between(point_, [&] { return inner_.ListContributions(round, after, limit); });
}
absl::StatusOr<TaskRecord> CrashingTaskStore::GetTask(const TaskId& id) {
  return Between(point_, [&] { return inner_.GetTask(id); });
}
absl::StatusOr<TaskRecord> CrashingTaskStore::GetTaskState(const TaskId& id) {
  return Between(point_, [&] { return inner_.GetTaskState(id); });
}
absl::StatusOr<std::vector<AttemptRecord>> CrashingTaskStore::ListAttempts(const TaskId& id) {
  return Between(point_, [&] { return inner_.ListAttempts(id); });
}
absl::StatusOr<std::vector<TaskRecord>> CrashingTaskStore::ListTasks(const ListTasksParams& params) {
  return Between(point_, [&] { return inner_.ListTasks(params); });
}
absl::StatusOr<TaskStore::QueueRecord> CrashingTaskStore::DescribeQueue(const std::string& population, absl::Time now) {
  return Between(point_, [&] { return inner_.DescribeQueue(population, now); });
}
absl::StatusOr<std::vector<std::string>> CrashingTaskStore::ListRequirements(const RoundId& round) {
  return Between(point_, [&] { return inner_.ListRequirements(round); });
}
absl::StatusOr<absl::Time> CrashingTaskStore::NextDueTime(absl::Time now) {
  return Between(point_, [&] { return inner_.NextDueTime(now); });
}
absl::StatusOr<std::vector<TokenRecord>> CrashingTaskStore::ListTokens(const ListTokensParams& params) {
  return Between(point_, [&] { return inner_.ListTokens(params); });
}
absl::StatusOr<WorkerRecord> CrashingTaskStore::GetWorker(const std::string& population, const WorkerName& name) {
  return Between(point_, [&] { return inner_.GetWorker(population, name); });
}
absl::StatusOr<std::vector<WorkerRecord>> CrashingTaskStore::ListWorkers(const ListWorkersParams& params) {
  return Between(point_, [&] { return inner_.ListWorkers(params); });
}

}  // namespace sheaf::simulation
