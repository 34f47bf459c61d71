// Tasks that go on in another round.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/state_names.h"
#include "storage/transitions.h"

namespace sheaf {

absl::StatusOr<std::vector<TaskRecord>> SqlTaskStore::CarryOver(const CarryOverParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(CheckArguments(params));
  RETURN_IF_ERROR(FindRound(params.from).status());
  ASSIGN_OR_RETURN(Round * to, FindRound(params.to));
  ASSIGN_OR_RETURN(Round * from, FindRound(params.from));
  if (from->record.population != to->record.population) return CannotCarryOver(from->record, to->record);
  if (from->record.state != RoundState::kCollecting) {
    return RoundIsElsewhere(params.from, from->record.state, RoundState::kCollecting);
  }
  if (!HandsOutTasks(to->record.state)) return RoundHasStopped(params.to, to->record.state);

  std::vector<TaskRecord> before;
  for (const TaskId& id : leases_.OfRound(params.from)) {
    if (static_cast<int64_t>(before.size()) == params.tasks_max) break;
    const TaskRecord& task = *leases_.Find(id);
    if (task.staleness < params.staleness_max) before.push_back(task);
  }
  if (before.empty()) return before;
  RETURN_IF_ERROR(WriteCarried(*from, *to, before, params));

  std::vector<TaskRecord> carried;
  auto index = static_cast<int32_t>(to->record.tasks.total());
  for (const TaskRecord& task : before) {
    carried.push_back(AsCarried(task, {params.to, index++}, to->record.create_time));
    leases_.Erase(task.id);
    leases_.Put(to->record.population, carried.back());
    GiveBack(*from, task.worker);
    if (to->num_taken) ++(*to->num_taken)[task.worker];
    if (const auto& second = task.second_lease) {
      GiveBack(*from, second->worker);
      if (to->num_taken) ++(*to->num_taken)[second->worker];
    }
  }
  const auto num_carried = static_cast<int64_t>(carried.size());
  Touch(*from);
  from->record.tasks.leased -= num_carried;
  from->record.tasks.cancelled += num_carried;
  Touch(*to);
  to->record.tasks.leased += num_carried;
  return carried;
}

absl::Status SqlTaskStore::WriteCarried(const Round& from, const Round& to, const std::vector<TaskRecord>& before,
                                        const CarryOverParams& params) {
  // What follows reads the rows: a statement for each table, however many tasks there are.
  RETURN_IF_ERROR(WriteNotes());
  const auto num_rows = static_cast<int64_t>(before.size());
  const int64_t first = KeyOf(from, before.front().id.index);
  const int64_t last = KeyOf(from, before.back().id.index);
  const int64_t first_carried = KeyOf(to, static_cast<int32_t>(to.record.tasks.total()));
  const int64_t last_carried = first_carried + num_rows - 1;
  RETURN_IF_ERROR(Run("-- carry_requirement\nINSERT INTO round_requirements (round_key, number, requirement) "
                      "VALUES (?, -1, ?) ON CONFLICT DO NOTHING",
                      {to.key, SqlText("")})
                      .status());
  RETURN_IF_ERROR(Change(num_rows, R"(-- carry_tasks
      INSERT INTO tasks (task_key, round_key, requirement, state, available_time, delayed_until, end_time, worker,
                         lease_token, poll_id, lease_time, expire_time, attempt_deadline_time, progress, num_attempts,
                         num_failed, num_lost, last_error)
      SELECT ? + row_number() OVER (ORDER BY t.task_key) - 1, ?, -1, t.state, t.available_time, NULL, t.end_time, t.worker,
             t.lease_token, t.poll_id, t.lease_time, t.expire_time, t.attempt_deadline_time, t.progress,
             CASE WHEN s.attempt > 0 THEN 2 ELSE 1 END, 0, 0, ?
        FROM tasks t LEFT JOIN second_leases s ON s.task_key = t.task_key
        LEFT JOIN carried_tasks c ON c.task_key = t.task_key
       WHERE t.task_key BETWEEN ? AND ? AND t.state = $LEASED AND coalesce(c.staleness, 0) < ?)"_sql,
                         {first_carried, to.key, SqlBlob(""), first, last, int64_t{params.staleness_max}}));
  RETURN_IF_ERROR(Change(
      num_rows, R"(-- carry_over
      INSERT INTO carried_tasks (task_key, from_key, origin_round, origin_index, staleness)
      SELECT ? + row_number() OVER (ORDER BY t.task_key) - 1, t.task_key, coalesce(c.origin_round, ?),
             coalesce(c.origin_index, t.task_key - ?), coalesce(c.staleness, 0) + 1
        FROM tasks t LEFT JOIN carried_tasks c ON c.task_key = t.task_key
       WHERE t.task_key BETWEEN ? AND ? AND t.state = $LEASED AND coalesce(c.staleness, 0) < ?)"_sql,
      {first_carried, SqlText(from.record.id.value()), KeyOf(from, 0), first, last, int64_t{params.staleness_max}}));
  // The rest goes by the rows that say what was carried.
  RETURN_IF_ERROR(Change(num_rows, R"(-- carry_attempts
      INSERT INTO attempts (task_key, number, worker, lease_time, end_time, outcome, error, timings, bytes_up)
      SELECT t.task_key, coalesce(s.first_attempt, t.num_attempts), t.worker, t.lease_time, ?, $ATTEMPT_CANCELLED, ?, ?, 0
        FROM carried_tasks c JOIN tasks t ON t.task_key = c.from_key
        LEFT JOIN second_leases s ON s.task_key = t.task_key
       WHERE c.task_key BETWEEN ? AND ?)"_sql,
                         {ToSql(params.now), SqlBlob(CarriedTo(params.to)), SqlBlob(""), first_carried, last_carried}));
  RETURN_IF_ERROR(Run(R"(-- carry_second_attempts
      INSERT INTO attempts (task_key, number, worker, lease_time, end_time, outcome, error, timings, bytes_up)
      SELECT s.task_key, s.attempt, s.worker, s.lease_time, ?, $ATTEMPT_CANCELLED, ?, ?, 0
        FROM carried_tasks c JOIN second_leases s ON s.task_key = c.from_key
       WHERE c.task_key BETWEEN ? AND ? AND s.attempt > 0)"_sql,
                      {ToSql(params.now), SqlBlob(CarriedTo(params.to)), SqlBlob(""), first_carried, last_carried})
                      .status());
  RETURN_IF_ERROR(Run(R"(-- carry_second_leases
      INSERT INTO second_leases (task_key, first_attempt, attempt, worker, lease_token, poll_id, lease_time, expire_time,
                                 attempt_deadline_time, progress)
      SELECT c.task_key, 1, 2, s.worker, s.lease_token, s.poll_id, s.lease_time, s.expire_time, s.attempt_deadline_time,
             s.progress
        FROM carried_tasks c JOIN second_leases s ON s.task_key = c.from_key
       WHERE c.task_key BETWEEN ? AND ? AND s.attempt > 0)",
                      {first_carried, last_carried})
                      .status());
  RETURN_IF_ERROR(Run(R"(-- leave_second_leases
      DELETE FROM second_leases
       WHERE task_key IN (SELECT from_key FROM carried_tasks WHERE task_key BETWEEN ? AND ?))",
                      {first_carried, last_carried})
                      .status());
  return Change(num_rows, R"(-- leave_tasks
      UPDATE tasks SET state = $TASK_CANCELLED, end_time = ?, worker = NULL, lease_token = '', poll_id = '', lease_time = 0,
             expire_time = NULL, attempt_deadline_time = 0, progress = 0
       WHERE state = $LEASED
         AND task_key IN (SELECT from_key FROM carried_tasks WHERE task_key BETWEEN ? AND ?))"_sql,
                {ToSql(params.now), first_carried, last_carried});
}

std::optional<TaskId> SqlTaskStore::PlaceOf(const TaskId& name) const { return leases_.PlaceOf(name); }

}  // namespace sheaf
