// Reading and writing one task, and looking at many.
#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/state_names.h"
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
  if (!HasStopped(static_cast<RoundState>(row.Int(20))) || IsEnded(task.state)) return task;
  task.state = TaskState::kCancelled;
  task.end_time = row.Time(21);
  ClearLease(task);
  return task;
}

absl::StatusOr<TaskRecord> SqlTaskStore::FindTask(Round& round, const TaskId& id) {
  static const std::string sql = fmt::format(R"(-- get_task
      SELECT {} FROM tasks t JOIN rounds r ON r.round_key = t.round_key
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key
       WHERE t.task_key = ?)",
                                             kTaskColumns);
  if (id.index < 0) return NoSuchTask(id);
  RETURN_IF_ERROR(WriteNotes());
  if (HasStopped(round.record.state)) RETURN_IF_ERROR(FlushRounds());
  std::optional<TaskRecord> task;
  RETURN_IF_ERROR(Run(sql, {KeyOf(round, id.index)}, [&](const SqlRow& row) { task = ReadTask(row); }).status());
  if (!task) return NoSuchTask(id);
  return *std::move(task);
}

absl::StatusOr<TaskRecord> SqlTaskStore::FindLease(const TaskId& id, const LeaseToken& token) {
  ASSIGN_OR_RETURN(TaskRecord task, GetTaskState(id));
  if (task.state != TaskState::kLeased || task.lease_token != token) return LeaseIsGone(id, task.state);
  return task;
}

void SqlTaskStore::NoteUnleased(const Round& round, const TaskRecord& before, const TaskRecord& task, absl::Time now) {
  leases_.Erase(task.id);
  notes_.PutTask(KeyOf(round, task.id.index), before, task).is_delayed =
      task.state == TaskState::kQueued && task.available_time > now;
}

void SqlTaskStore::NoteAttempt(const Round& round, const TaskRecord& task, AttemptRecord ended) {
  ended.number = task.num_attempts;
  ended.worker = task.worker;
  ended.lease_time = task.lease_time;
  notes_.Add(BatchNotes::Attempt{.task_key = KeyOf(round, task.id.index), .record = std::move(ended)});
}

absl::Status SqlTaskStore::WriteNotes() {
  for (const auto& [key, task] : notes_.tasks()) RETURN_IF_ERROR(WriteTask(key, task));
  for (const auto& [key, attempt] : notes_.attempts()) {
    RETURN_IF_ERROR(Change(1, R"(-- end_attempt
        INSERT INTO attempts (task_key, number, worker, lease_time, end_time, outcome, error, timings, bytes_up)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?))",
                           {key, int64_t{attempt.number}, SqlText(attempt.worker.value()), ToSql(attempt.lease_time),
                            ToSql(attempt.end_time), static_cast<int64_t>(attempt.outcome), SqlBlob(attempt.error),
                            SqlBlob(attempt.timings), attempt.bytes_up}));
  }
  for (const auto& [round_key, task_key, c] : notes_.contributions()) {
    RETURN_IF_ERROR(Change(1, R"(-- record_contribution
        INSERT INTO contributions (round_key, sequence, task_key, worker, lease_token, digest, size_bytes, num_clients,
                                   spool_segment, spool_offset, spool_length, spool_crc, accept_time)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))",
                           {round_key, c.sequence, task_key, SqlText(c.worker.value()), SqlText(c.lease_token.value()),
                            SqlText(c.digest), c.size_bytes, c.num_clients, c.payload.segment, c.payload.offset,
                            c.payload.length, int64_t{c.payload.crc}, ToSql(c.accept_time)}));
  }
  notes_.Clear();
  return absl::OkStatus();
}

absl::Status SqlTaskStore::WriteTask(int64_t key, const BatchNotes::Task& noted) {
  const TaskRecord& task = noted.record;
  const bool is_leased = task.state == TaskState::kLeased;
  if (is_leased && noted.stored_state == TaskState::kLeased && noted.stored_num_attempts == task.num_attempts) {
    return Change(1, R"(-- renew_lease
        UPDATE tasks SET progress = ?, expire_time = ? WHERE task_key = ? AND state = $LEASED AND lease_token = ?)"_sql,
                  {task.progress, ToSql(task.expire_time), key, SqlText(task.lease_token.value())});
  }
  if (task.num_attempts > kAttemptsKept && task.num_attempts > noted.stored_num_attempts) {
    RETURN_IF_ERROR(Run("-- delete_old_attempts\nDELETE FROM attempts WHERE task_key = ? AND number <= ?",
                        {key, int64_t{task.num_attempts} - kAttemptsKept})
                        .status());
  }
  SqlValue delayed_until = SqlNull();
  if (noted.is_delayed) delayed_until = ToSql(task.available_time);
  SqlValue worker = SqlNull();
  if (!task.worker.empty()) worker = SqlText(task.worker.value());
  SqlValue expire_time = SqlNull();
  if (is_leased) expire_time = ToSql(task.expire_time);
  return Change(1, R"(-- put_task
      UPDATE tasks SET state = ?, available_time = ?, delayed_until = ?, end_time = ?, worker = ?, lease_token = ?,
             poll_id = ?, lease_time = ?, expire_time = ?, attempt_deadline_time = ?, progress = ?, num_attempts = ?,
             num_failed = ?, num_lost = ?, last_error = ?
       WHERE task_key = ? AND state = ? AND num_attempts = ?)",
                {static_cast<int64_t>(task.state), ToSql(task.available_time), delayed_until, ToSql(task.end_time),
                 worker, SqlText(task.lease_token.value()), SqlText(task.poll_id), ToSql(task.lease_time), expire_time,
                 ToSql(task.attempt_deadline_time), task.progress, int64_t{task.num_attempts}, int64_t{task.num_failed},
                 int64_t{task.num_lost}, SqlBlob(task.last_error), key, static_cast<int64_t>(noted.stored_state),
                 int64_t{noted.stored_num_attempts}});
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
  // The newest, if it runs, or was cancelled with its round.
  RETURN_IF_ERROR(Run(R"(-- last_attempt
      SELECT num_attempts, worker, lease_time FROM tasks WHERE task_key = ? AND state = $LEASED)"_sql,
                      {KeyOf(*round, id.index)},
                      [&](const SqlRow& row) {
                        attempts.push_back({.number = static_cast<int32_t>(row.Int(0)),
                                            .worker = WorkerName(row.Bytes(1)),
                                            .lease_time = row.Time(2)});
                        if (!HasStopped(round->record.state)) return;
                        attempts.back().end_time = round->cancel_time;
                        attempts.back().outcome = AttemptOutcome::kCancelled;
                      })
                      .status());
  return attempts;
}

namespace {

// The tasks of rounds r between two places, and what ListTasksParams gives for that.
constexpr std::string_view kTasksBetween = R"(rounds r CROSS JOIN tasks t
          ON t.task_key > (r.round_key << 32) + CASE r.id WHEN ? THEN ? ELSE -1 END
         AND t.task_key <= (r.round_key << 32) + CASE r.id WHEN ? THEN ? ELSE 2147483647 END)";
constexpr std::string_view kOfRounds = "r.id >= ? AND r.id <= ? AND (? = '' OR r.population = ?)";

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
  static const std::string sql = fmt::format(R"(-- list_tasks
      SELECT {} FROM {}
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key
       WHERE {} AND (? >> {}) & 1 AND (? = '' OR (t.worker = ? AND NOT (r.$HAS_STOPPED AND t.$IS_OPEN)))
       ORDER BY r.id, t.task_key LIMIT ?)"_sql,
                                             kTaskColumns, kTasksBetween, kOfRounds, kTaskState);
  RETURN_IF_ERROR(WriteNotes());
  RETURN_IF_ERROR(FlushRounds());
  int64_t states = params.states.empty() ? ~int64_t{0} : 0;
  for (TaskState state : params.states) states |= int64_t{1} << static_cast<int>(state);
  const Between between(params);
  std::vector<TaskRecord> tasks;
  RETURN_IF_ERROR(
      Run(sql,
          {SqlText(between.after.round.value()), int64_t{between.after.index}, SqlText(between.until.round.value()),
           int64_t{between.until.index}, SqlText(between.first), SqlText(between.last), SqlText(params.population),
           SqlText(params.population), states, SqlText(params.worker.value()), SqlText(params.worker.value()),
           int64_t{std::max(params.limit, 0)}},
          [&](const SqlRow& row) { tasks.push_back(ReadTask(row)); })
          .status());
  return tasks;
}

absl::StatusOr<std::optional<TaskId>> SqlTaskStore::SkipTasks(const ListTasksParams& params) {
  static const std::string sql = fmt::format(R"(-- skip_tasks
      SELECT r.id, t.task_key FROM {} WHERE {} ORDER BY r.id, t.task_key LIMIT 1 OFFSET ?)",
                                             kTasksBetween, kOfRounds);
  RETURN_IF_ERROR(FlushRounds());
  ListTasksParams all = params;
  all.until.reset();
  const Between between(all);
  std::optional<TaskId> last;
  RETURN_IF_ERROR(
      Run(sql,
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
      SELECT count(*), coalesce(sum(num_queued) FILTER (WHERE state = $COLLECTING), 0),
             coalesce(sum(num_leased) FILTER (WHERE state = $COLLECTING), 0),
             coalesce(sum(num_succeeded) FILTER (WHERE state = $COLLECTING), 0),
             coalesce(sum(num_failed) FILTER (WHERE state = $COLLECTING), 0),
             coalesce(sum(num_cancelled) FILTER (WHERE state = $COLLECTING), 0),
             coalesce(sum(num_buried) FILTER (WHERE state = $COLLECTING), 0)
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
  auto consider = [&](const SqlRow& row) { due = std::min(due, row.Time(0)); };
  RETURN_IF_ERROR(Run("-- next_available\nSELECT delayed_until FROM tasks WHERE delayed_until > ? "
                      "ORDER BY delayed_until LIMIT 1",
                      {after}, consider)
                      .status());
  RETURN_IF_ERROR(Run(R"(-- next_deadline
      SELECT deadline_time FROM rounds WHERE $HAS_DEADLINE AND deadline_time > ? ORDER BY deadline_time LIMIT 1)"_sql,
                      {after}, consider)
                      .status());
  return due;
}

}  // namespace sheaf
