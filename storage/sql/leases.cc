// Leases: handing out, renewing, ending.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"

namespace sheaf {

absl::Status SqlTaskStore::LoadLeases() {
  static const std::string sql = fmt::format(R"(-- load_leases
      SELECT {}, r.population FROM rounds r CROSS JOIN tasks t ON t.task_key BETWEEN (r.round_key << 32) AND (r.round_key << 32) + 2147483647
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key
       WHERE r.state <= 3 AND r.state = 2 AND r.num_leased > 0 AND t.state = 2)",
                                             kTaskColumns);
  RETURN_IF_ERROR(
      Run(sql, {}, [&](const SqlRow& row) { leases_.Put(row.String(kNumTaskColumns), ReadTask(row)); }).status());
  leases_.Commit();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SqlTaskStore::CountTaken(Round& round, const WorkerName& worker) {
  if (!round.num_taken) {
    std::unordered_map<WorkerName, int64_t> num_taken;
    RETURN_IF_ERROR(Run("-- count_taken\nSELECT worker, count(*) FROM tasks WHERE task_key BETWEEN ? AND ? AND "
                        "state IN (2, 3) GROUP BY worker",
                        {KeyOf(round, 0), KeyOf(round, INT32_MAX)},
                        [&](const SqlRow& row) { num_taken[WorkerName(row.Bytes(0))] = row.Int(1); })
                        .status());
    round.num_taken = std::move(num_taken);
  }
  return (*round.num_taken)[worker];
}

void SqlTaskStore::GiveBack(Round& round, const WorkerName& worker) {
  if (round.num_taken) --(*round.num_taken)[worker];
}

absl::StatusOr<WaitingTasks*> SqlTaskStore::CountWaiting(Round& round) {
  if (!round.waiting) {
    WaitingTasks waiting(round.requirements.size());
    RETURN_IF_ERROR(
        Run("-- count_waiting\nSELECT requirement, available_time FROM tasks WHERE round_key = ? AND state = 1",
            {round.key}, [&](const SqlRow& row) { waiting.Add(static_cast<size_t>(row.Int(0)), row.Time(1), 1); })
            .status());
    round.waiting = std::move(waiting);
  }
  return &*round.waiting;
}

size_t SqlTaskStore::NumberOf(const Round& round, const std::string& requirement) {
  const auto found = std::lower_bound(round.requirements.begin(), round.requirements.end(), requirement);
  SHEAF_CHECK(found != round.requirements.end() && *found == requirement, "round {} has no requirement \"{}\"",
              round.record.id, requirement);
  return static_cast<size_t>(found - round.requirements.begin());
}

void SqlTaskStore::NoteWaiting(Round& round, const TaskRecord& task, int64_t by) {
  if (round.waiting) round.waiting->Add(NumberOf(round, task.requirement), task.available_time, by);
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::FindLeasable(Round& round, const std::vector<size_t>& numbers,
                                                                   absl::Time now, int64_t wanted) {
  // Inputs may be large: of several requirements first the keys, then the inputs of those that are leased.
  std::vector<int64_t> keys;
  if (numbers.size() > 1) {
    for (const size_t number : numbers) {
      RETURN_IF_ERROR(Run(R"(-- find_leasable_keys
          SELECT task_key FROM tasks WHERE round_key = ? AND requirement = ? AND state = 1 AND available_time <= ?
           ORDER BY task_key LIMIT ?)",
                          {round.key, static_cast<int64_t>(number), ToSql(now), wanted},
                          [&](const SqlRow& row) { keys.push_back(row.Int(0)); })
                          .status());
      if (static_cast<int64_t>(keys.size()) <= 2 * wanted) continue;
      std::nth_element(keys.begin(), keys.begin() + wanted, keys.end());
      keys.resize(wanted);
    }
    std::sort(keys.begin(), keys.end());
    if (static_cast<int64_t>(keys.size()) > wanted) keys.resize(wanted);
  }
  std::vector<TaskRecord> found;
  const auto read = [&](const SqlRow& row) {
    found.push_back({.id = {round.record.id, static_cast<int32_t>(row.Int(0) & INT32_MAX)},
                     .payload = row.String(1),
                     .data_selector = row.String(2),
                     .requirement = round.requirements[static_cast<size_t>(row.Int(8))],
                     .create_time = round.record.create_time,
                     .available_time = row.Time(3),
                     .num_attempts = static_cast<int32_t>(row.Int(4)),
                     .num_failed = static_cast<int32_t>(row.Int(5)),
                     .num_lost = static_cast<int32_t>(row.Int(6)),
                     .last_error = row.String(7)});
  };
  if (numbers.size() == 1) {
    RETURN_IF_ERROR(Run(R"(-- find_leasable
        SELECT t.task_key, i.payload, i.data_selector, t.available_time, t.num_attempts, t.num_failed, t.num_lost,
               t.last_error, t.requirement
          FROM tasks t LEFT JOIN task_inputs i ON i.task_key = t.task_key
         WHERE t.round_key = ? AND t.requirement = ? AND t.state = 1 AND t.available_time <= ?
         ORDER BY t.task_key LIMIT ?)",
                        {round.key, static_cast<int64_t>(numbers[0]), ToSql(now), wanted}, read)
                        .status());
  }
  for (const int64_t key : keys) {
    RETURN_IF_ERROR(Run(R"(-- read_leasable
        SELECT t.task_key, i.payload, i.data_selector, t.available_time, t.num_attempts, t.num_failed, t.num_lost,
               t.last_error, t.requirement
          FROM tasks t LEFT JOIN task_inputs i ON i.task_key = t.task_key WHERE t.task_key = ?)",
                        {key}, read)
                        .status());
  }
  return found;
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::LeaseTasks(const LeaseTasksParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  ASSIGN_OR_RETURN(Round * round, FindCollectingRound(params.round));
  int64_t wanted = static_cast<int64_t>(params.tokens.size());
  if (params.per_worker_max > 0) {
    ASSIGN_OR_RETURN(const int64_t num_taken, CountTaken(*round, params.worker));
    wanted = std::min(wanted, params.per_worker_max - num_taken);
  }
  if (wanted <= 0 || round->record.tasks.queued == 0) return std::vector<TaskRecord>();

  // Of the requirements that the worker fulfils, those that tasks wait with.
  ASSIGN_OR_RETURN(WaitingTasks * waiting, CountWaiting(*round));
  std::vector<size_t> numbers;
  const auto consider = [&](const std::string& requirement) {
    const auto found = std::lower_bound(round->requirements.begin(), round->requirements.end(), requirement);
    if (found == round->requirements.end() || *found != requirement) return;
    const auto number = static_cast<size_t>(found - round->requirements.begin());
    if (waiting->Count(number) > 0) numbers.push_back(number);
  };
  consider("");
  for (const std::string& requirement : params.fulfilled_requirements) consider(requirement);
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  ASSIGN_OR_RETURN(std::vector<TaskRecord> leased, FindLeasable(*round, numbers, params.now, wanted));
  if (leased.empty()) return leased;

  for (size_t i = 0; i < leased.size(); ++i) {
    TaskRecord& task = leased[i];
    NoteWaiting(*round, task, -1);
    task.state = TaskState::kLeased;
    task.worker = params.worker;
    task.lease_token = params.tokens[i];
    task.poll_id = params.poll_id;
    task.lease_time = params.now;
    task.expire_time = std::min(params.expire_time, params.attempt_deadline_time);
    task.attempt_deadline_time = params.attempt_deadline_time;
    ++task.num_attempts;
    RETURN_IF_ERROR(Change(1, R"(-- lease_task
        UPDATE tasks SET state = 2, delayed_until = NULL, worker = ?, lease_token = ?, poll_id = ?, lease_time = ?,
               expire_time = ?, attempt_deadline_time = ?, num_attempts = ?
         WHERE task_key = ? AND state = 1)",
                           {SqlText(task.worker.value()), SqlText(task.lease_token.value()), SqlText(task.poll_id),
                            ToSql(task.lease_time), ToSql(task.expire_time), ToSql(task.attempt_deadline_time),
                            int64_t{task.num_attempts}, KeyOf(*round, task.id.index)}));
    if (task.num_attempts > kAttemptsKept) {
      RETURN_IF_ERROR(Run("-- delete_old_attempts\nDELETE FROM attempts WHERE task_key = ? AND number <= ?",
                          {KeyOf(*round, task.id.index), int64_t{task.num_attempts} - kAttemptsKept})
                          .status());
    }
    leases_.Put(round->record.population, task);
  }
  int64_t num_leased = static_cast<int64_t>(leased.size());
  if (round->num_taken) (*round->num_taken)[params.worker] += num_leased;
  RETURN_IF_ERROR(CountForWorker(*round, params.worker, &WorkerRecord::num_leased, num_leased));
  Touch(*round);
  round->record.tasks.queued -= num_leased;
  round->record.tasks.leased += num_leased;
  return leased;
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::ListLeases(const std::string& population,
                                                                 const WorkerName& worker) {
  std::vector<TaskRecord> held;
  for (const TaskId& id : leases_.HeldBy(population, worker)) held.push_back(*leases_.Find(id));
  return held;
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::ListExpired(absl::Time now, int limit) {
  std::vector<TaskRecord> expired;
  for (const TaskId& id : leases_.Expired(now, limit)) expired.push_back(*leases_.Find(id));
  return expired;
}

absl::StatusOr<TaskRecord> SqlTaskStore::RenewLease(const RenewLeaseParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  auto round = FindRound(params.task.round);
  if (absl::IsNotFound(round.status())) return NoSuchTask(params.task);
  RETURN_IF_ERROR(round.status());
  ASSIGN_OR_RETURN(TaskRecord task, FindLease(params.task, params.token));
  if (params.progress <= task.progress) return task;
  task.progress = params.progress;
  task.expire_time = std::min(params.expire_time, task.attempt_deadline_time);
  RETURN_IF_ERROR(
      Change(1, R"(-- renew_lease
      UPDATE tasks SET progress = ?, expire_time = ? WHERE task_key = ? AND state = 2 AND lease_token = ?)",
             {task.progress, ToSql(task.expire_time), KeyOf(**round, task.id.index), SqlText(params.token.value())}));
  leases_.Put((*round)->record.population, task);
  return task;
}

void ClearLease(TaskRecord& task) {
  task.worker = WorkerName();
  task.lease_token = LeaseToken();
  task.poll_id.clear();
  task.lease_time = task.expire_time = task.attempt_deadline_time = absl::Time();
  task.progress = 0;
}

absl::StatusOr<TaskRecord> SqlTaskStore::EndAttempt(const EndAttemptParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  auto found = FindRound(params.task.round);
  if (absl::IsNotFound(found.status())) return NoSuchTask(params.task);
  RETURN_IF_ERROR(found.status());
  Round& round = **found;
  ASSIGN_OR_RETURN(TaskRecord task, FindLease(params.task, params.token));
  RETURN_IF_ERROR(InsertAttempt(
      round, task,
      {.end_time = params.now, .outcome = params.outcome, .error = params.error, .timings = params.timings}));
  Touch(round);
  if (params.outcome == AttemptOutcome::kFailed) {
    ++task.num_failed;
    ++round.record.num_failed_attempts;
    RETURN_IF_ERROR(CountForWorker(round, task.worker, &WorkerRecord::num_failed, 1));
  }
  if (params.outcome == AttemptOutcome::kLost) {
    ++task.num_lost;
    ++round.record.num_lost_attempts;
    RETURN_IF_ERROR(CountForWorker(round, task.worker, &WorkerRecord::num_lost, 1));
  }
  GiveBack(round, task.worker);
  ClearLease(task);
  if (!params.error.empty()) task.last_error = params.error;
  task.state = params.to;
  if (params.to == TaskState::kQueued) {
    task.available_time = params.available_time;
  } else {
    task.end_time = params.now;
  }
  RETURN_IF_ERROR(PutUnleasedTask(round, task, TaskState::kLeased, params.now));
  --round.record.tasks.leased;
  ++CountOf(round.record.tasks, task.state);
  if (task.state == TaskState::kQueued) NoteWaiting(round, task, 1);
  return task;
}

absl::StatusOr<TaskRecord> SqlTaskStore::RequeueTask(const RequeueTaskParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  auto found = FindRound(params.task.round);
  if (absl::IsNotFound(found.status())) return NoSuchTask(params.task);
  RETURN_IF_ERROR(found.status());
  Round& round = **found;
  ASSIGN_OR_RETURN(TaskRecord task, FindTask(round, params.task));
  RETURN_IF_ERROR(FindCollectingRound(params.task.round).status());
  TaskState from = task.state;
  if (from == TaskState::kSucceeded || from == TaskState::kCancelled) return CannotRequeue(params.task, from);

  if (from == TaskState::kLeased) {
    RETURN_IF_ERROR(InsertAttempt(round, task, {.end_time = params.now, .outcome = AttemptOutcome::kCancelled}));
    GiveBack(round, task.worker);
    ClearLease(task);
  }
  if (from == TaskState::kQueued) {
    // What is counted here of the batch goes with it, also where the round itself does not change.
    touched_rounds_.push_back(round.record.id);
    NoteWaiting(round, task, -1);
  }
  task.num_failed = task.num_lost = 0;
  task.end_time = absl::InfiniteFuture();
  task.available_time = from == TaskState::kQueued ? std::min(task.available_time, params.now) : params.now;
  task.state = TaskState::kQueued;
  RETURN_IF_ERROR(PutUnleasedTask(round, task, from, params.now));
  NoteWaiting(round, task, 1);
  if (from != TaskState::kQueued) {
    Touch(round);
    --CountOf(round.record.tasks, from);
    ++round.record.tasks.queued;
  }
  return task;
}

absl::StatusOr<bool> SqlTaskStore::LimitTimes(const LimitTimesParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  ASSIGN_OR_RETURN(Round * round, FindCollectingRound(params.round));
  bool has_changed = false;
  if (round->record.deadline_time > params.deadline_time_max) {
    RETURN_IF_ERROR(Change(1, "-- limit_deadline\nUPDATE rounds SET deadline_time = ? WHERE round_key = ?",
                           {ToSql(params.deadline_time_max), round->key}));
    round->record.deadline_time = params.deadline_time_max;
    has_changed = true;
  }
  for (const TaskId& id : leases_.OfRound(params.round)) {
    TaskRecord task = *leases_.Find(id);
    if (task.expire_time <= params.expire_time_max && task.attempt_deadline_time <= params.attempt_deadline_time_max) {
      continue;
    }
    task.expire_time = std::min(task.expire_time, params.expire_time_max);
    task.attempt_deadline_time = std::min(task.attempt_deadline_time, params.attempt_deadline_time_max);
    RETURN_IF_ERROR(Change(1, R"(-- limit_lease
        UPDATE tasks SET expire_time = ?, attempt_deadline_time = ? WHERE task_key = ? AND state = 2)",
                           {ToSql(task.expire_time), ToSql(task.attempt_deadline_time), KeyOf(*round, id.index)}));
    leases_.Put(round->record.population, std::move(task));
    has_changed = true;
  }
  ASSIGN_OR_RETURN(const int64_t num_queued, Run(R"(-- limit_delay
      UPDATE tasks SET available_time = ?, delayed_until = NULL
       WHERE task_key BETWEEN ? AND ? AND state = 1 AND available_time > ?)",
                                                 {ToSql(params.now), KeyOf(*round, 0), KeyOf(*round, INT32_MAX),
                                                  ToSql(params.available_time_max)}));
  has_changed |= num_queued > 0;
  if (num_queued > 0) round->waiting.reset();
  if (has_changed) Touch(*round);
  return has_changed;
}

}  // namespace sheaf
