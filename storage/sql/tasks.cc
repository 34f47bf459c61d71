// Reading and writing one task, and looking at many.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/second_lease.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/state_names.h"
#include "storage/sql/task_columns.h"
#include "storage/transitions.h"

namespace sheaf {

TaskRecord ReadTask(const SqlRow& row) {
  TaskRecord task{.id = {RoundId(row.Bytes(0)), static_cast<int32_t>(row.Int(1) & INT32_MAX)},
                  .state = static_cast<TaskState>(row.Int(2)),
                  .payload = row.String(3),
                  .data_selector = row.String(4),
                  .requirement = row.String(5),
                  .create_time = row.Time(6),
                  .available_time = row.Time(7),
                  .end_time = row.Time(8),
                  .worker = WorkerName(row.Bytes(9)),
                  .lease_token = LeaseToken(row.Bytes(10)),
                  .poll_id = row.String(11),
                  .lease_time = row.Time(12),
                  .expire_time = row.Time(13),
                  .attempt_deadline_time = row.Time(14),
                  .progress = row.Int(15),
                  .num_attempts = static_cast<int32_t>(row.Int(16)),
                  .num_failed = static_cast<int32_t>(row.Int(17)),
                  .num_lost = static_cast<int32_t>(row.Int(18)),
                  .last_error = row.String(19)};
  if (!row.IsNull(22)) task.origin = {RoundId(row.Bytes(22)), static_cast<int32_t>(row.Int(23))};
  task.staleness = static_cast<int32_t>(row.Int(24));
  if (!row.IsNull(25)) task.carried_to = {RoundId(row.Bytes(25)), static_cast<int32_t>(row.Int(26) & INT32_MAX)};
  if (!HasStopped(static_cast<RoundState>(row.Int(20))) || IsEnded(task.state)) return task;
  task.state = TaskState::kCancelled;
  task.end_time = row.Time(21);
  EndFirstLease(task);
  return task;
}

absl::StatusOr<TaskRecord> SqlTaskStore::FindTask(Round& round, const TaskId& id) {
  static const std::string sql = fmt::format(R"(-- get_task
      SELECT {} FROM tasks t JOIN rounds r ON r.round_key = t.round_key
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key {}
       WHERE t.task_key = ?)",
                                             kTaskColumns, kTaskCarried);
  if (id.index < 0) return NoSuchTask(id);
  RETURN_IF_ERROR(WriteNotes());
  if (HasStopped(round.record.state)) RETURN_IF_ERROR(FlushRounds());
  std::optional<TaskRecord> task;
  RETURN_IF_ERROR(Run(sql, {KeyOf(round, id.index)}, [&](const SqlRow& row) { task = ReadTask(row); }).status());
  if (!task) return NoSuchTask(id);
  AddLeases(*task);
  return *std::move(task);
}

void SqlTaskStore::AddLeases(TaskRecord& task) const {
  if (task.state != TaskState::kLeased) return;
  const TaskRecord* leased = leases_.Find(task.id);
  SHEAF_CHECK(leased != nullptr, "task {} is leased, and not in memory", task.id.ToString());
  task.attempt = leased->attempt;
  task.second_lease = leased->second_lease;
}

absl::StatusOr<TaskRecord> SqlTaskStore::FindLease(const TaskId& id, const LeaseToken& token) {
  ASSIGN_OR_RETURN(TaskRecord task, GetTaskState(id));
  const TaskState state = task.state;
  task = AsHeldUnder(std::move(task), token);
  if (state != TaskState::kLeased || task.lease_token != token) return LeaseIsGone(id, state);
  return task;
}

void SqlTaskStore::NoteUnleased(const Round& round, const TaskRecord& before, const TaskRecord& task, absl::Time now) {
  leases_.Erase(task.id);
  notes_.PutTask(KeyOf(round, task.id.index), before, task).is_delayed =
      task.state == TaskState::kQueued && task.available_time > now;
}

void SqlTaskStore::NoteLeased(const Round& round, const TaskRecord& before, const TaskRecord& task) {
  notes_.PutTask(KeyOf(round, task.id.index), before, task);
  leases_.Put(round.record.population, task);
}

void SqlTaskStore::NoteAttempt(const Round& round, const TaskRecord& task, AttemptRecord ended) {
  ended.number = task.attempt;
  ended.worker = task.worker;
  ended.lease_time = task.lease_time;
  notes_.Add(BatchNotes::Attempt{.task_key = KeyOf(round, task.id.index), .record = std::move(ended)});
}

absl::Status SqlTaskStore::WriteNotes() {
  if (notes_.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(batch_status_);
  RETURN_IF_ERROR(Broken(engine_->WriteNotes(notes_)));
  RETURN_IF_ERROR(WriteSecondLeases());
  notes_.Clear();
  return absl::OkStatus();
}

absl::Status SqlTaskStore::WriteSecondLeases() {
  for (const auto& [key, noted] : notes_.tasks()) {
    if (noted.may_have_second_row) {
      RETURN_IF_ERROR(Change(1, "-- end_second_lease\nDELETE FROM second_leases WHERE task_key = ?", {key}));
    }
    if (!noted.HasSecondRow()) continue;
    const SecondLease second = noted.record.second_lease.value_or(SecondLease());
    RETURN_IF_ERROR(Change(1, R"(-- lease_again
        INSERT INTO second_leases (task_key, first_attempt, attempt, worker, lease_token, poll_id, lease_time, expire_time,
                                   attempt_deadline_time, progress)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?))",
                           {key, int64_t{noted.record.attempt}, int64_t{second.attempt}, SqlText(second.worker.value()),
                            SqlText(second.lease_token.value()), SqlText(second.poll_id), ToSql(second.lease_time),
                            ToSql(second.expire_time), ToSql(second.attempt_deadline_time), second.progress}));
  }
  return absl::OkStatus();
}

absl::StatusOr<TaskRecord> SqlTaskStore::GetTask(const TaskId& id) {
  auto round = FindRound(id.round);
  if (absl::IsNotFound(round.status())) return NoSuchTask(id);
  RETURN_IF_ERROR(round.status());
  return FindTask(**round, id);
}

absl::StatusOr<TaskRecord> SqlTaskStore::GetTaskState(const TaskId& id) {
  auto round = FindRound(id.round);
  if (absl::IsNotFound(round.status())) return NoSuchTask(id);
  RETURN_IF_ERROR(round.status());
  if (const TaskRecord* leased = leases_.Find(id)) return *leased;
  const TaskRecord* noted = id.index < 0 ? nullptr : notes_.FindTask(KeyOf(**round, id.index));
  // Of a round that has stopped since, those that had not ended are CANCELLED.
  if (noted != nullptr && (IsEnded(noted->state) || !HasStopped((*round)->record.state))) return *noted;
  ASSIGN_OR_RETURN(TaskRecord task, FindTask(**round, id));
  task.payload.clear();
  task.data_selector.clear();
  return task;
}

absl::StatusOr<std::vector<AttemptRecord>> SqlTaskStore::ListAttempts(const TaskId& id) {
  RETURN_IF_ERROR(GetTask(id).status());
  ASSIGN_OR_RETURN(Round * round, FindRound(id.round));
  std::vector<AttemptRecord> attempts;
  RETURN_IF_ERROR(Run(R"(-- list_attempts
      SELECT number, worker, lease_time, end_time, outcome, error, timings, bytes_up
        FROM attempts WHERE task_key = ? ORDER BY number)",
                      {KeyOf(*round, id.index)},
                      [&](const SqlRow& row) {
                        attempts.push_back({.number = static_cast<int32_t>(row.Int(0)),
                                            .worker = WorkerName(row.Bytes(1)),
                                            .lease_time = row.Time(2),
                                            .end_time = row.Time(3),
                                            .outcome = static_cast<AttemptOutcome>(row.Int(4)),
                                            .error = row.String(5),
                                            .timings = row.String(6),
                                            .bytes_up = row.Int(7)});
                      })
                      .status());
  // Those that run, or were cancelled with their round.
  RETURN_IF_ERROR(Run(R"(-- last_attempts
      SELECT coalesce(s.first_attempt, t.num_attempts), t.worker, t.lease_time
        FROM tasks t LEFT JOIN second_leases s ON s.task_key = t.task_key WHERE t.task_key = ? AND t.state = $LEASED
      UNION ALL SELECT attempt, worker, lease_time FROM second_leases WHERE task_key = ? AND attempt > 0)"_sql,
                      {KeyOf(*round, id.index), KeyOf(*round, id.index)},
                      [&](const SqlRow& row) {
                        attempts.push_back({.number = static_cast<int32_t>(row.Int(0)),
                                            .worker = WorkerName(row.Bytes(1)),
                                            .lease_time = row.Time(2)});
                        if (!HasStopped(round->record.state)) return;
                        attempts.back().end_time = round->cancel_time;
                        attempts.back().outcome = AttemptOutcome::kCancelled;
                      })
                      .status());
  std::sort(attempts.begin(), attempts.end(),
            [](const AttemptRecord& a, const AttemptRecord& b) { return a.number < b.number; });
  return attempts;
}

namespace {

struct Between {
  TaskId after;
  TaskId until;
  std::string first;
  std::string last;

  explicit Between(const TaskStore::ListTasksParams& params)
      : after(params.after.value_or(TaskId{RoundId(), -1})), until(params.until.value_or(TaskId{RoundId(), -1})) {
    first = after.round.value();
    // Greater than every id in UTF-8.
    last = params.until ? until.round.value() : "\xff";
    if (!params.round) return;
    first = std::max(first, params.round->value());
    last = std::min(last, params.round->value());
  }
};

}  // namespace

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::ListTasks(const ListTasksParams& params) {
  RETURN_IF_ERROR(WriteNotes());
  RETURN_IF_ERROR(FlushRounds());
  int64_t states = params.states.empty() ? ~int64_t{0} : 0;
  for (TaskState state : params.states) states |= int64_t{1} << static_cast<int>(state);
  const Between between(params);
  std::vector<TaskRecord> tasks;
  RETURN_IF_ERROR(
      Run(engine_->texts().list_tasks,
          {SqlText(between.after.round.value()), int64_t{between.after.index}, SqlText(between.until.round.value()),
           int64_t{between.until.index}, SqlText(between.first), SqlText(between.last), SqlText(params.population),
           SqlText(params.population), states, SqlText(params.worker.value()), SqlText(params.worker.value()),
           SqlText(params.worker.value()), int64_t{std::max(params.limit, 0)}},
          [&](const SqlRow& row) { tasks.push_back(ReadTask(row)); })
          .status());
  for (TaskRecord& task : tasks) AddLeases(task);
  return tasks;
}

absl::StatusOr<std::optional<TaskId>> SqlTaskStore::SkipTasks(const ListTasksParams& params) {
  RETURN_IF_ERROR(FlushRounds());
  ListTasksParams all = params;
  all.until.reset();
  const Between between(all);
  std::optional<TaskId> last;
  RETURN_IF_ERROR(
      Run(engine_->texts().skip_tasks,
          {SqlText(between.after.round.value()), int64_t{between.after.index}, SqlText(between.until.round.value()),
           int64_t{between.until.index}, SqlText(between.first), SqlText(between.last), SqlText(params.population),
           SqlText(params.population), int64_t{std::max(params.limit - 1, 0)}},
          [&](const SqlRow& row) {
            last = TaskId{RoundId(row.Bytes(0)), static_cast<int32_t>(row.Int(1) & INT32_MAX)};
          })
          .status());
  return last;
}

absl::StatusOr<TaskStore::QueueRecord> SqlTaskStore::DescribeQueue(const std::string& population, absl::Time now) {
  RETURN_IF_ERROR(FlushRounds());
  QueueRecord queue;
  RETURN_IF_ERROR(Run(R"(-- describe_queue
      SELECT count(*), CAST(coalesce(sum(num_queued) FILTER (WHERE state = $COLLECTING), 0) AS BIGINT),
             CAST(coalesce(sum(num_leased) FILTER (WHERE state = $COLLECTING), 0) AS BIGINT),
             CAST(coalesce(sum(num_succeeded) FILTER (WHERE state = $COLLECTING), 0) AS BIGINT),
             CAST(coalesce(sum(num_failed) FILTER (WHERE state = $COLLECTING), 0) AS BIGINT),
             CAST(coalesce(sum(num_cancelled) FILTER (WHERE state = $COLLECTING), 0) AS BIGINT),
             CAST(coalesce(sum(num_buried) FILTER (WHERE state = $COLLECTING), 0) AS BIGINT)
        FROM rounds WHERE $IS_LIVE AND (? = '' OR population = ?))"_sql,
                      {SqlText(population), SqlText(population)},
                      [&](const SqlRow& row) {
                        queue.num_live_rounds = row.Int(0);
                        queue.tasks = {.queued = row.Int(1),
                                       .leased = row.Int(2),
                                       .succeeded = row.Int(3),
                                       .failed = row.Int(4),
                                       .cancelled = row.Int(5),
                                       .buried = row.Int(6)};
                      })
                      .status());
  std::vector<RoundId> collecting;
  RETURN_IF_ERROR(Run(R"(-- describe_waiting
      SELECT id FROM rounds
       WHERE $IS_LIVE AND state = $COLLECTING AND num_queued > 0 AND (? = '' OR population = ?))"_sql,
                      {SqlText(population), SqlText(population)},
                      [&](const SqlRow& row) { collecting.emplace_back(row.Bytes(0)); })
                      .status());
  // Memory has the tasks themselves: there may be millions.
  for (const RoundId& id : collecting) {
    ASSIGN_OR_RETURN(Round * round, FindRound(id));
    ASSIGN_OR_RETURN(const WaitingTasks* waiting, LoadWaiting(*round));
    queue.num_delayed += waiting->NumDelayed(now);
    queue.oldest_available_time = std::min(queue.oldest_available_time, waiting->Oldest(now));
  }
  return queue;
}

absl::StatusOr<absl::Time> SqlTaskStore::NextDueTime(absl::Time now) {
  RETURN_IF_ERROR(WriteNotes());
  RETURN_IF_ERROR(FlushRounds());
  absl::Time due = leases_.NextExpiry(now);
  int64_t after = ToSql(now);
  RETURN_IF_ERROR(Run(R"(-- next_due
      SELECT min(delayed_until) FROM tasks WHERE delayed_until > ?
      UNION ALL SELECT min(deadline_time) FROM rounds WHERE $HAS_DEADLINE AND deadline_time > ?)"_sql,
                      {after, after},
                      [&](const SqlRow& row) {
                        if (!row.IsNull(0)) due = std::min(due, row.Time(0));
                      })
                      .status());
  return due;
}

}  // namespace sheaf
