// Leases: handing out, renewing, ending.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/second_lease.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/state_names.h"
#include "storage/sql/task_columns.h"

namespace sheaf {
namespace {

// A round trip is worth some hundred tasks, if they are small.
constexpr size_t kInputsReadAhead = 256;
constexpr int64_t kInputsReadAheadBytesMax = int64_t{1} << 20;

}  // namespace

absl::Status SqlTaskStore::LoadLeases() {
  RETURN_IF_ERROR(Run(engine_->texts().load_leases, {}, [&](const SqlRow& row) {
                    TaskRecord task = ReadTask(row);
                    task.attempt = task.num_attempts;
                    leases_.Put(row.String(kNumTaskColumns), std::move(task));
                  }).status());
  RETURN_IF_ERROR(LoadSecondLeases());
  leases_.Commit();
  return absl::OkStatus();
}

absl::Status SqlTaskStore::LoadSecondLeases() {
  return Run(R"(-- load_second_leases
      SELECT r.id, r.population, s.task_key, s.first_attempt, s.attempt, s.worker, s.lease_token, s.poll_id, s.lease_time,
             s.expire_time, s.attempt_deadline_time, s.progress
        FROM second_leases s JOIN tasks t ON t.task_key = s.task_key JOIN rounds r ON r.round_key = t.round_key
       WHERE r.$IS_LIVE AND r.$HANDS_OUT_TASKS AND t.state = $LEASED)"_sql,
             {},
             [&](const SqlRow& row) {
               TaskRecord task = *leases_.Find({RoundId(row.Bytes(0)), static_cast<int32_t>(row.Int(2) & INT32_MAX)});
               task.attempt = static_cast<int32_t>(row.Int(3));
               if (row.Int(4) != 0) {
                 task.second_lease = {.worker = WorkerName(row.Bytes(5)),
                                      .lease_token = LeaseToken(row.Bytes(6)),
                                      .poll_id = row.String(7),
                                      .lease_time = row.Time(8),
                                      .expire_time = row.Time(9),
                                      .attempt_deadline_time = row.Time(10),
                                      .progress = row.Int(11),
                                      .attempt = static_cast<int32_t>(row.Int(4))};
               }
               leases_.Put(row.String(1), std::move(task));
             })
      .status();
}

absl::StatusOr<int64_t> SqlTaskStore::CountTaken(Round& round, const WorkerName& worker) {
  if (!round.num_taken) {
    RETURN_IF_ERROR(WriteNotes());
    std::unordered_map<WorkerName, int64_t> num_taken;
    RETURN_IF_ERROR(Run(R"(-- count_taken
        SELECT worker, count(*) FROM tasks
         WHERE task_key BETWEEN ? AND ? AND state IN ($LEASED, $TASK_SUCCEEDED) GROUP BY worker
        UNION ALL SELECT worker, count(*) FROM second_leases
         WHERE task_key BETWEEN ? AND ? AND attempt > 0 GROUP BY worker)"_sql,
                        {KeyOf(round, 0), KeyOf(round, INT32_MAX), KeyOf(round, 0), KeyOf(round, INT32_MAX)},
                        [&](const SqlRow& row) { num_taken[WorkerName(row.Bytes(0))] += row.Int(1); })
                        .status());
    round.num_taken = std::move(num_taken);
  }
  return (*round.num_taken)[worker];
}

absl::StatusOr<int64_t> SqlTaskStore::NumLeft(Round& round, const WorkerName& worker, int32_t per_worker_max,
                                              size_t wanted) {
  if (per_worker_max == 0) return static_cast<int64_t>(wanted);
  ASSIGN_OR_RETURN(const int64_t num_taken, CountTaken(round, worker));
  return std::min(static_cast<int64_t>(wanted), per_worker_max - num_taken);
}

void SqlTaskStore::GiveBack(Round& round, const WorkerName& worker) {
  if (round.num_taken) --(*round.num_taken)[worker];
}

absl::StatusOr<WaitingTasks*> SqlTaskStore::LoadWaiting(Round& round) {
  if (round.waiting) return &*round.waiting;
  RETURN_IF_ERROR(WriteNotes());
  const absl::Time create_time = round.record.create_time;
  WaitingTasks waiting(round.requirements.size(), create_time);
  RETURN_IF_ERROR(
      Run(engine_->texts().load_waiting, {round.key, KeyOf(round, 0), KeyOf(round, INT32_MAX)}, [&](const SqlRow& row) {
        const auto index = static_cast<int32_t>(row.Int(0) & INT32_MAX);
        const auto requirement = static_cast<size_t>(row.Int(1));
        if (row.Int(3) == 0 && row.Int(2) == ToSql(create_time)) {
          return waiting.AddNew(requirement, index);
        }
        waiting.AddBack(requirement, index,
                        {.available_time = row.Time(2),
                         .num_attempts = static_cast<int32_t>(row.Int(3)),
                         .num_failed = static_cast<int32_t>(row.Int(4)),
                         .num_lost = static_cast<int32_t>(row.Int(5)),
                         .last_error = row.String(6)});
      }).status());
  RETURN_IF_ERROR(Run("-- has_inputs\nSELECT EXISTS (SELECT 1 FROM task_inputs WHERE task_key BETWEEN ? AND ?)",
                      {KeyOf(round, 0), KeyOf(round, INT32_MAX)},
                      [&](const SqlRow& row) { round.has_inputs = row.Int(0) != 0; })
                      .status());
  round.waiting = std::move(waiting);
  return &*round.waiting;
}

size_t SqlTaskStore::NumberOf(const Round& round, const std::string& requirement) {
  const auto found = std::lower_bound(round.requirements.begin(), round.requirements.end(), requirement);
  SHEAF_CHECK(found != round.requirements.end() && *found == requirement, "round {} has no requirement \"{}\"",
              round.record.id, requirement);
  return static_cast<size_t>(found - round.requirements.begin());
}

void SqlTaskStore::NoteBack(Round& round, const TaskRecord& task) {
  if (!round.waiting) return;
  round.waiting->AddBack(NumberOf(round, task.requirement), task.id.index,
                         {.available_time = task.available_time,
                          .num_attempts = task.num_attempts,
                          .num_failed = task.num_failed,
                          .num_lost = task.num_lost,
                          .last_error = task.last_error});
}

absl::Status SqlTaskStore::ReadInputs(const Round& round, std::span<const size_t> requirements, absl::Time now,
                                      std::span<TaskRecord> tasks) {
  if (!round.has_inputs) return absl::OkStatus();
  if (is_in_batch_) RETURN_IF_ERROR(batch_status_);
  if (!engine_->is_far()) {
    for (TaskRecord& task : tasks) {
      const int64_t key = KeyOf(round, task.id.index);
      RETURN_IF_ERROR(Broken(engine_->ReadInputs({&key, 1}, 1, 0, [&](const SqlRow& row) {
        task.payload = row.String(1);
        task.data_selector = row.String(2);
      })));
    }
    return absl::OkStatus();
  }
  std::vector<int64_t> keys;
  std::unordered_map<int64_t, TaskRecord*> missing;
  for (TaskRecord& task : tasks) {
    const int64_t key = KeyOf(round, task.id.index);
    if (const InputsAhead::Input* input = inputs_.Find(key)) {
      task.payload = input->payload;
      task.data_selector = input->data_selector;
    } else {
      keys.push_back(key);
      missing[key] = &task;
    }
  }
  if (missing.empty()) return absl::OkStatus();
  // In the same round trip those that are leased next.
  for (const WaitingTasks::Found& next : round.waiting->Find(requirements, now, tasks.size() + kInputsReadAhead)) {
    const int64_t key = KeyOf(round, next.index);
    if (!missing.contains(key) && inputs_.Find(key) == nullptr) keys.push_back(key);
  }
  const size_t num_wanted = missing.size();
  RETURN_IF_ERROR(Broken(engine_->ReadInputs(keys, num_wanted, kInputsReadAheadBytesMax, [&](const SqlRow& row) {
    inputs_.Put(row.Int(0), row.String(1), row.String(2));
    const auto wanted = missing.find(row.Int(0));
    if (wanted == missing.end()) return;
    wanted->second->payload = row.String(1);
    wanted->second->data_selector = row.String(2);
    missing.erase(wanted);
  })));
  if (missing.empty()) return absl::OkStatus();
  return Broken(absl::DataLossError(fmt::format("{} did not tell the inputs of {} tasks of round {}",
                                                connection_->name(), missing.size(), round.record.id)));
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::LeaseTasks(const LeaseTasksParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  ASSIGN_OR_RETURN(Round * round, FindOpenRound(params.round));
  ASSIGN_OR_RETURN(const int64_t wanted, NumLeft(*round, params.worker, params.per_worker_max, params.tokens.size()));
  if (wanted <= 0 || round->record.tasks.queued == 0) return std::vector<TaskRecord>();

  // Of the requirements that the worker fulfils, those that tasks wait with.
  ASSIGN_OR_RETURN(WaitingTasks * waiting, LoadWaiting(*round));
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
  const std::vector<WaitingTasks::Found> found = waiting->Find(numbers, params.now, static_cast<size_t>(wanted));
  if (found.empty()) return std::vector<TaskRecord>();

  // Before anything changes: a database that does not answer is the only way to fail from here on.
  std::vector<TaskRecord> leased;
  leased.reserve(found.size());
  for (const WaitingTasks::Found& task : found) {
    leased.push_back({.id = {round->record.id, task.index},
                      .requirement = round->requirements[task.requirement],
                      .create_time = round->record.create_time,
                      .available_time = task.past.available_time,
                      .num_attempts = task.past.num_attempts,
                      .num_failed = task.past.num_failed,
                      .num_lost = task.past.num_lost,
                      .last_error = task.past.last_error});
  }
  RETURN_IF_ERROR(ReadInputs(*round, numbers, params.now, leased));
  const auto num_leased = static_cast<int64_t>(leased.size());
  RETURN_IF_ERROR(CountForWorker(*round, params.worker, &WorkerRecord::num_leased, num_leased));
  for (size_t i = 0; i < leased.size(); ++i) {
    waiting->Remove(found[i].requirement, found[i].index);
    TaskRecord& task = leased[i];
    const TaskRecord before = {.id = task.id, .num_attempts = task.num_attempts};
    task.state = TaskState::kLeased;
    task.worker = params.worker;
    task.lease_token = params.tokens[i];
    task.poll_id = params.poll_id;
    task.lease_time = Kept(params.now);
    task.expire_time = Kept(std::min(params.expire_time, params.attempt_deadline_time));
    task.attempt_deadline_time = Kept(params.attempt_deadline_time);
    task.attempt = ++task.num_attempts;
    NoteLeased(*round, before, task);
  }
  if (round->num_taken) (*round->num_taken)[params.worker] += num_leased;
  Touch(*round);
  round->record.tasks.queued -= num_leased;
  round->record.tasks.leased += num_leased;
  return leased;
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::LeaseAgain(const LeaseAgainParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  ASSIGN_OR_RETURN(Round * round, FindRound(params.round));
  if (round->record.state != RoundState::kCollecting) {
    return RoundIsElsewhere(params.round, round->record.state, RoundState::kCollecting);
  }
  ASSIGN_OR_RETURN(const int64_t wanted, NumLeft(*round, params.worker, params.per_worker_max, params.tokens.size()));
  std::vector<TaskRecord> leased;
  for (const int32_t index : leases_.SingleLeasesOf(params.round)
                                 .LongestHeld(params.fulfilled_requirements, params.begun_by, params.candidates_max)) {
    if (static_cast<int64_t>(leased.size()) >= wanted) break;
    const TaskRecord& task = *leases_.Find({params.round, index});
    if (task.worker != params.worker && MayTryAgain(task, params)) leased.push_back(task);
  }
  if (leased.empty()) return leased;
  // Before anything changes.
  ASSIGN_OR_RETURN(const WaitingTasks* waiting, LoadWaiting(*round));
  SHEAF_CHECK(waiting != nullptr, "round {} knows what waits", params.round);
  RETURN_IF_ERROR(ReadInputs(*round, {}, params.now, leased));
  const auto num_leased = static_cast<int64_t>(leased.size());
  RETURN_IF_ERROR(CountForWorker(*round, params.worker, &WorkerRecord::num_leased, num_leased));
  for (size_t i = 0; i < leased.size(); ++i) {
    TaskRecord& task = leased[i];
    const TaskRecord before = *leases_.Find(task.id);
    task.second_lease = {.worker = params.worker,
                         .lease_token = params.tokens[i],
                         .poll_id = params.poll_id,
                         .lease_time = Kept(params.now),
                         .expire_time = Kept(std::min(params.expire_time, params.attempt_deadline_time)),
                         .attempt_deadline_time = Kept(params.attempt_deadline_time),
                         .progress = 0,
                         .attempt = ++task.num_attempts};
    NoteLeased(*round, before, task);
    task = AsHeldUnder(std::move(task), params.tokens[i]);
  }
  if (round->num_taken) (*round->num_taken)[params.worker] += num_leased;
  Touch(*round);
  return leased;
}

absl::StatusOr<absl::Time> SqlTaskStore::FirstLeaseTime(const RoundId& id, absl::Time after) {
  ASSIGN_OR_RETURN(const Round* round, FindRound(id));
  if (!HandsOutTasks(round->record.state)) return absl::InfiniteFuture();
  return leases_.SingleLeasesOf(id).FirstAfter(after);
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::ListLeases(const std::string& population,
                                                                 const WorkerName& worker) {
  return leases_.HeldBy(population, worker);
}

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::ListExpired(absl::Time now, int limit) {
  return leases_.Expired(now, limit);
}

absl::StatusOr<TaskRecord> SqlTaskStore::RenewLease(const RenewLeaseParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  auto round = FindRound(params.task.round);
  if (absl::IsNotFound(round.status())) return NoSuchTask(params.task);
  RETURN_IF_ERROR(round.status());
  ASSIGN_OR_RETURN(TaskRecord task, FindLease(params.task, params.token));
  if (params.progress <= task.progress && params.attempt_deadline_time_max >= task.attempt_deadline_time) return task;
  const TaskRecord before = *leases_.Find(task.id);
  task.attempt_deadline_time = Kept(std::min(task.attempt_deadline_time, params.attempt_deadline_time_max));
  if (params.progress > task.progress) task.expire_time = params.expire_time;
  task.progress = std::max(task.progress, params.progress);
  task.expire_time = Kept(std::min(task.expire_time, task.attempt_deadline_time));
  NoteLeased(**round, before, AsHeldUnder(task, before.lease_token));
  return task;
}

absl::StatusOr<TaskRecord> SqlTaskStore::EndAttempt(const EndAttemptParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  auto found = FindRound(params.task.round);
  if (absl::IsNotFound(found.status())) return NoSuchTask(params.task);
  RETURN_IF_ERROR(found.status());
  Round& round = **found;
  ASSIGN_OR_RETURN(const TaskRecord seen, FindLease(params.task, params.token));
  const TaskRecord before = *leases_.Find(params.task);
  TaskRecord task = seen;
  if (params.outcome == AttemptOutcome::kFailed) {
    RETURN_IF_ERROR(CountForWorker(round, task.worker, &WorkerRecord::num_failed, 1));
    ++task.num_failed;
    ++round.record.num_failed_attempts;
  }
  if (params.outcome == AttemptOutcome::kLost) {
    RETURN_IF_ERROR(CountForWorker(round, task.worker, &WorkerRecord::num_lost, 1));
    ++task.num_lost;
    ++round.record.num_lost_attempts;
  }
  NoteAttempt(round, seen,
              {.end_time = params.now, .outcome = params.outcome, .error = params.error, .timings = params.timings});
  GiveBack(round, task.worker);
  EndFirstLease(task);
  if (!params.error.empty()) task.last_error = params.error;
  Touch(round);
  if (task.attempt != 0) {
    // Another attempt runs.
    NoteLeased(round, before, task);
    return task;
  }
  task.state = task.origin ? TaskState::kCancelled : params.to;
  if (task.state == TaskState::kQueued) {
    task.available_time = Kept(params.available_time);
  } else {
    task.end_time = Kept(params.now);
  }
  NoteUnleased(round, before, task, params.now);
  --round.record.tasks.leased;
  ++CountOf(round.record.tasks, task.state);
  if (task.state == TaskState::kQueued) NoteBack(round, task);
  return task;
}

absl::StatusOr<TaskRecord> SqlTaskStore::RequeueTask(const RequeueTaskParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  auto found = FindRound(params.task.round);
  if (absl::IsNotFound(found.status())) return NoSuchTask(params.task);
  RETURN_IF_ERROR(found.status());
  Round& round = **found;
  ASSIGN_OR_RETURN(const TaskRecord before, FindTask(round, params.task));
  RETURN_IF_ERROR(FindOpenRound(params.task.round).status());
  TaskRecord task = before;
  const TaskState from = task.state;
  if (from == TaskState::kSucceeded || from == TaskState::kCancelled) return CannotRequeue(params.task, from);
  if (task.origin) return CannotRunAgain(params.task, *task.origin);

  while (task.attempt != 0) {
    NoteAttempt(round, task, {.end_time = params.now, .outcome = AttemptOutcome::kCancelled});
    GiveBack(round, task.worker);
    EndFirstLease(task);
  }
  if (from == TaskState::kQueued) {
    // What is counted here of the batch goes with it, also where the round itself does not change.
    touched_rounds_.push_back(round.record.id);
    if (round.waiting) round.waiting->Remove(NumberOf(round, task.requirement), task.id.index);
  }
  task.num_failed = task.num_lost = 0;
  task.end_time = absl::InfiniteFuture();
  task.available_time = Kept(from == TaskState::kQueued ? std::min(task.available_time, params.now) : params.now);
  task.state = TaskState::kQueued;
  NoteUnleased(round, before, task, params.now);
  NoteBack(round, task);
  if (from != TaskState::kQueued) {
    Touch(round);
    --CountOf(round.record.tasks, from);
    ++round.record.tasks.queued;
  }
  return task;
}

absl::StatusOr<bool> SqlTaskStore::LimitTimes(const LimitTimesParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  ASSIGN_OR_RETURN(Round * round, FindOpenRound(params.round));
  RETURN_IF_ERROR(WriteNotes());
  bool has_changed = false;
  if (round->record.deadline_time > params.deadline_time_max) {
    RETURN_IF_ERROR(Change(1, "-- limit_deadline\nUPDATE rounds SET deadline_time = ? WHERE round_key = ?",
                           {ToSql(params.deadline_time_max), round->key}));
    round->record.deadline_time = params.deadline_time_max;
    has_changed = true;
  }
  for (const TaskId& id : leases_.OfRound(params.round)) {
    TaskRecord task = *leases_.Find(id);
    if (task.origin) continue;
    if (task.second_lease) {
      SecondLease& second = *task.second_lease;
      second.expire_time = Kept(std::min(second.expire_time, params.expire_time_max));
      second.attempt_deadline_time = Kept(std::min(second.attempt_deadline_time, params.attempt_deadline_time_max));
    }
    if (task.expire_time <= params.expire_time_max && task.attempt_deadline_time <= params.attempt_deadline_time_max &&
        task.second_lease == leases_.Find(id)->second_lease) {
      continue;
    }
    task.expire_time = Kept(std::min(task.expire_time, params.expire_time_max));
    task.attempt_deadline_time = Kept(std::min(task.attempt_deadline_time, params.attempt_deadline_time_max));
    RETURN_IF_ERROR(Change(1, R"(-- limit_lease
        UPDATE tasks SET expire_time = ?, attempt_deadline_time = ? WHERE task_key = ? AND state = $LEASED)"_sql,
                           {ToSql(task.expire_time), ToSql(task.attempt_deadline_time), KeyOf(*round, id.index)}));
    if (task.second_lease) {
      RETURN_IF_ERROR(Change(1, R"(-- limit_second_lease
          UPDATE second_leases SET expire_time = ?, attempt_deadline_time = ? WHERE task_key = ?)",
                             {ToSql(task.second_lease->expire_time), ToSql(task.second_lease->attempt_deadline_time),
                              KeyOf(*round, id.index)}));
    }
    leases_.Put(round->record.population, std::move(task));
    has_changed = true;
  }
  ASSIGN_OR_RETURN(const int64_t num_queued, Run(R"(-- limit_delay
      UPDATE tasks SET available_time = ?, delayed_until = NULL
       WHERE task_key BETWEEN ? AND ? AND state = $QUEUED AND available_time > ?)"_sql,
                                                 {ToSql(params.now), KeyOf(*round, 0), KeyOf(*round, INT32_MAX),
                                                  ToSql(params.available_time_max)}));
  has_changed |= num_queued > 0;
  if (num_queued > 0) round->waiting.reset();
  if (has_changed) Touch(*round);
  return has_changed;
}

}  // namespace sheaf
