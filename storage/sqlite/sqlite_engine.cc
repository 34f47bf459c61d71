#include "storage/sqlite/sqlite_engine.h"

#include <fmt/format.h>

#include <string>

#include "base/status_macros.h"
#include "storage/sql/migrator.h"
#include "storage/sql/state_names.h"
#include "storage/sql/task_columns.h"

namespace sheaf {

TaskStore::Info SqliteEngine::GetInfo() const {
  return {.engine = "sqlite", .schema_version = SqliteMigrations().back().version};
}

absl::Status SqliteEngine::Migrate() { return sheaf::Migrate(*connection_, SqliteMigrations()); }

absl::Status SqliteEngine::WriteNotes(const BatchNotes& notes) {
  for (const auto& [key, task] : notes.tasks()) RETURN_IF_ERROR(WriteTask(key, task));
  for (const auto& [key, attempt] : notes.attempts()) {
    RETURN_IF_ERROR(
        connection_->Change(1, R"(-- end_attempt
        INSERT INTO attempts (task_key, number, worker, lease_time, end_time, outcome, error, timings, bytes_up)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?))",
                            {key, int64_t{attempt.number}, SqlText(attempt.worker.value()), ToSql(attempt.lease_time),
                             ToSql(attempt.end_time), static_cast<int64_t>(attempt.outcome), SqlBlob(attempt.error),
                             SqlBlob(attempt.timings), attempt.bytes_up}));
  }
  for (const auto& [round_key, task_key, c] : notes.contributions()) {
    RETURN_IF_ERROR(
        connection_->Change(1, R"(-- record_contribution
        INSERT INTO contributions (round_key, sequence, task_key, worker, lease_token, digest, size_bytes, num_clients,
                                   spool_segment, spool_offset, spool_length, spool_crc, accept_time)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))",
                            {round_key, c.sequence, task_key, SqlText(c.worker.value()), SqlText(c.lease_token.value()),
                             SqlText(c.digest), c.size_bytes, c.num_clients, c.payload.segment, c.payload.offset,
                             c.payload.length, int64_t{c.payload.crc}, ToSql(c.accept_time)}));
  }
  return absl::OkStatus();
}

absl::Status SqliteEngine::WriteTask(int64_t key, const BatchNotes::Task& noted) {
  const TaskRecord& task = noted.record;
  const bool is_leased = task.state == TaskState::kLeased;
  if (noted.IsRenewal()) {
    return connection_->Change(1, R"(-- renew_lease
        UPDATE tasks SET progress = ?, expire_time = ?, attempt_deadline_time = ?
         WHERE task_key = ? AND state = $LEASED AND lease_token = ?)"_sql,
                               {task.progress, ToSql(task.expire_time), ToSql(task.attempt_deadline_time), key,
                                SqlText(task.lease_token.value())});
  }
  if (noted.HasOldAttempts()) {
    RETURN_IF_ERROR(connection_
                        ->Execute("-- delete_old_attempts\nDELETE FROM attempts WHERE task_key = ? AND number <= ?",
                                  {key, int64_t{task.num_attempts} - kAttemptsKept})
                        .status());
  }
  SqlValue delayed_until = SqlNull();
  if (noted.is_delayed) delayed_until = ToSql(task.available_time);
  SqlValue worker = SqlNull();
  if (!task.worker.empty()) worker = SqlText(task.worker.value());
  SqlValue expire_time = SqlNull();
  if (is_leased) expire_time = ToSql(task.expire_time);
  return connection_->Change(
      1, R"(-- put_task
      UPDATE tasks SET state = ?, available_time = ?, delayed_until = ?, end_time = ?, worker = ?, lease_token = ?,
             poll_id = ?, lease_time = ?, expire_time = ?, attempt_deadline_time = ?, progress = ?, num_attempts = ?,
             num_failed = ?, num_lost = ?, last_error = ?
       WHERE task_key = ? AND state = ? AND num_attempts = ?)",
      {static_cast<int64_t>(task.state), ToSql(task.available_time), delayed_until, ToSql(task.end_time), worker,
       SqlText(task.lease_token.value()), SqlText(task.poll_id), ToSql(task.lease_time), expire_time,
       ToSql(task.attempt_deadline_time), task.progress, int64_t{task.num_attempts}, int64_t{task.num_failed},
       int64_t{task.num_lost}, SqlBlob(task.last_error), key, static_cast<int64_t>(noted.stored_state),
       int64_t{noted.stored_num_attempts}});
}

absl::Status SqliteEngine::PutRounds(std::span<const RoundRow> rounds) {
  for (const RoundRow& row : rounds) {
    const RoundRecord& r = *row.record;
    RETURN_IF_ERROR(connection_->Change(1, R"(-- put_round
        UPDATE rounds SET state = ?, version = ?, end_time = ?, num_queued = ?, num_leased = ?, num_succeeded = ?,
               num_failed = ?, num_cancelled = ?, num_buried = ?, num_failed_attempts = ?, num_lost_attempts = ?,
               num_contributions = ?, num_clients = ?, bytes_up = ?, checkpoint = ?, checkpoint_sequence = ?,
               progress = ?, error = ?, cancel_time = ?
         WHERE round_key = ? AND version = ?)",
                                        {static_cast<int64_t>(r.state),
                                         r.version,
                                         ToSql(r.end_time),
                                         r.tasks.queued,
                                         r.tasks.leased,
                                         r.tasks.succeeded,
                                         r.tasks.failed,
                                         r.tasks.cancelled,
                                         r.tasks.buried,
                                         r.num_failed_attempts,
                                         r.num_lost_attempts,
                                         r.num_contributions,
                                         r.num_clients,
                                         r.bytes_up,
                                         SqlText(r.checkpoint),
                                         r.checkpoint_sequence,
                                         SqlBlob(r.progress),
                                         SqlBlob(r.error),
                                         ToSql(row.cancel_time),
                                         row.key,
                                         row.stored_version}));
  }
  return absl::OkStatus();
}

absl::Status SqliteEngine::PutWorkers(std::span<const WorkerRow> workers) {
  for (const WorkerRow& row : workers) {
    const WorkerRecord& w = *row.record;
    RETURN_IF_ERROR(connection_->Change(
        1, R"(-- put_worker
        INSERT INTO workers (name, population, description, first_seen_time, last_seen_time, is_draining, num_leased,
                             num_succeeded, num_failed, num_lost)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (name, population) DO UPDATE SET description = excluded.description,
          last_seen_time = excluded.last_seen_time, is_draining = excluded.is_draining,
          num_leased = excluded.num_leased, num_succeeded = excluded.num_succeeded, num_failed = excluded.num_failed,
          num_lost = excluded.num_lost)",
        {SqlText(w.name.value()), SqlText(w.population), SqlBlob(w.description), ToSql(w.first_seen_time),
         ToSql(w.last_seen_time), int64_t{w.is_draining}, w.num_leased, w.num_succeeded, w.num_failed, w.num_lost}));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> SqliteEngine::DeleteWorkers(
    std::span<const TaskStore::WorkerAge> workers) {
  std::vector<TaskStore::WorkerAge> deleted;
  for (const TaskStore::WorkerAge& worker : workers) {
    ASSIGN_OR_RETURN(
        const int64_t num_deleted,
        connection_->Execute(
            "-- delete_worker\nDELETE FROM workers WHERE name = ? AND population = ? AND last_seen_time = ?",
            {SqlText(worker.name.value()), SqlText(worker.population), ToSql(worker.last_seen_time)}));
    if (num_deleted > 0) deleted.push_back(worker);
  }
  return deleted;
}

absl::Status SqliteEngine::InsertTasks(const NewTasks& tasks) {
  for (const NewRequirement& requirement : tasks.requirements) {
    RETURN_IF_ERROR(connection_->Change(1,
                                        "-- create_requirement\nINSERT INTO round_requirements (round_key, number, "
                                        "requirement) VALUES (?, ?, ?)",
                                        {tasks.round_key, requirement.number, SqlText(requirement.text)}));
  }
  const int64_t available_time = ToSql(tasks.create_time);
  for (size_t i = 0; i < tasks.tasks.size(); ++i) {
    const TaskStore::NewTask& task = tasks.tasks[i];
    const int64_t key = tasks.first_key + static_cast<int64_t>(i);
    RETURN_IF_ERROR(connection_->Change(
        1, R"(-- create_task
        INSERT INTO tasks (task_key, round_key, requirement, state, available_time, end_time, lease_token, poll_id,
                           lease_time, attempt_deadline_time, progress, num_attempts, num_failed, num_lost, last_error)
        VALUES (?, ?, ?, $QUEUED, ?, ?, '', '', 0, 0, 0, 0, 0, 0, x''))"_sql,
        {key, tasks.round_key, tasks.requirement_numbers[i], available_time, ToSql(absl::InfiniteFuture())}));
    if (task.payload.empty() && task.data_selector.empty()) continue;
    RETURN_IF_ERROR(connection_->Change(
        1, "-- create_task_input\nINSERT INTO task_inputs (task_key, payload, data_selector) VALUES (?, ?, ?)",
        {key, SqlBlob(task.payload), SqlBlob(task.data_selector)}));
  }
  return absl::OkStatus();
}

absl::Status SqliteEngine::ReadInputs(std::span<const int64_t> task_keys, size_t num_wanted, int64_t /*bytes_max*/,
                                      SqlConnection::RowCallback on_row) {
  for (const int64_t key : task_keys.first(num_wanted)) {
    RETURN_IF_ERROR(connection_
                        ->Execute("-- read_input\nSELECT task_key, payload, data_selector FROM task_inputs WHERE "
                                  "task_key = ?",
                                  {key}, on_row)
                        .status());
  }
  return absl::OkStatus();
}

namespace {

// A CROSS JOIN keeps the order of its tables: rounds by their ids, and of each the tasks between two keys.
constexpr std::string_view kTasksBetween = R"(rounds r CROSS JOIN tasks t
          ON t.task_key > (r.round_key << 32) + CASE r.id WHEN ? THEN ? ELSE -1 END
         AND t.task_key <= (r.round_key << 32) + CASE r.id WHEN ? THEN ? ELSE 2147483647 END)";
constexpr std::string_view kOfRounds = "r.id >= ? AND r.id <= ? AND (? = '' OR r.population = ?)";

}  // namespace

const SqlEngine::Texts& SqliteEngine::texts() const {
  static const std::string load_leases = fmt::format(R"(-- load_leases
      SELECT {}, r.population FROM rounds r CROSS JOIN tasks t ON t.task_key BETWEEN (r.round_key << 32) AND (r.round_key << 32) + 2147483647
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key {}
       WHERE r.$IS_LIVE AND r.$HANDS_OUT_TASKS AND r.num_leased > 0 AND t.state = $LEASED)"_sql,
                                                     kTaskColumns, kTaskCarried);
  static const std::string list_tasks = fmt::format(R"(-- list_tasks
      SELECT {} FROM {}
        JOIN round_requirements q ON q.round_key = t.round_key AND q.number = t.requirement
        LEFT JOIN task_inputs i ON i.task_key = t.task_key {}
       WHERE {} AND (? >> {}) & 1 AND (? = '' OR (NOT (r.$HAS_STOPPED AND t.$IS_OPEN) AND (t.worker = ? OR EXISTS (
             SELECT 1 FROM second_leases s WHERE s.task_key = t.task_key AND s.worker = ?))))
       ORDER BY r.id, t.task_key LIMIT ?)"_sql,
                                                    kTaskColumns, kTasksBetween, kTaskCarried, kOfRounds, kTaskState);
  static const std::string skip_tasks = fmt::format(R"(-- skip_tasks
      SELECT r.id, t.task_key FROM {} WHERE {} ORDER BY r.id, t.task_key LIMIT 1 OFFSET ?)",
                                                    kTasksBetween, kOfRounds);
  static const Texts texts = {.load_leases = load_leases,
                              // The index is by round, requirement and key, and has nothing but what is QUEUED.
                              .load_waiting = R"(-- load_waiting
      SELECT task_key, requirement, available_time, num_attempts, num_failed, num_lost, last_error FROM tasks
       WHERE round_key = ? AND +task_key BETWEEN ? AND ? AND state = $QUEUED ORDER BY requirement, task_key)"_sql,
                              .list_tasks = list_tasks,
                              .skip_tasks = skip_tasks};
  return texts;
}

}  // namespace sheaf
