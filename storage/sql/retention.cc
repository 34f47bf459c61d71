// Deleting what has ended.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/sql/sql_task_store.h"

namespace sheaf {

absl::StatusOr<TaskStore::DeletedRounds> SqlTaskStore::DeleteEndedRounds(const DeleteEndedRoundsParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(FlushRounds());
  DeletedRounds deleted;
  int64_t num_ended = 0;
  RETURN_IF_ERROR(Run("-- count_ended\nSELECT count(*) FROM rounds WHERE state >= 4", {}, [&](const SqlRow& row) {
                    num_ended = row.Int(0);
                  }).status());
  std::vector<int64_t> keys;
  // One more than fits, to know whether there is more.
  RETURN_IF_ERROR(Run(R"(-- find_ended
      SELECT r.round_key, r.id, r.end_time, x.aggregate_digest
        FROM rounds r JOIN round_texts x ON x.round_key = r.round_key
       WHERE r.state >= 4 ORDER BY r.end_time, r.create_time, r.id LIMIT ?)",
                      {params.tasks_limit + 1},
                      [&](const SqlRow& row) {
                        const bool is_old = row.Time(2) <= params.ended_by;
                        const int64_t num_left = num_ended - static_cast<int64_t>(keys.size());
                        if (!deleted.is_done || (!is_old && num_left <= params.keep_max)) return;
                        if (static_cast<int64_t>(keys.size()) == params.tasks_limit) {
                          deleted.is_done = false;
                          return;
                        }
                        keys.push_back(row.Int(0));
                        deleted.rounds.emplace_back(row.Bytes(1));
                        if (row.String(3) != "") deleted.aggregate_digests.push_back(row.String(3));
                      })
                      .status());
  for (size_t i = 0; i < keys.size(); ++i) {
    RETURN_IF_ERROR(Change(1, "-- delete_round\nINSERT INTO deleted_rounds (round_key) VALUES (?)", {keys[i]}));
    RETURN_IF_ERROR(
        Run("-- delete_requirements\nDELETE FROM round_requirements WHERE round_key = ?", {keys[i]}).status());
    RETURN_IF_ERROR(Change(1, "-- delete_round_texts\nDELETE FROM round_texts WHERE round_key = ?", {keys[i]}));
    RETURN_IF_ERROR(Change(1, "-- delete_round_row\nDELETE FROM rounds WHERE round_key = ?", {keys[i]}));
    rounds_.erase(deleted.rounds[i]);
    std::erase(touched_rounds_, deleted.rounds[i]);
  }

  std::vector<int64_t> unfinished;
  RETURN_IF_ERROR(
      Run("-- find_deleted\nSELECT round_key FROM deleted_rounds ORDER BY round_key", {}, [&](const SqlRow& row) {
        unfinished.push_back(row.Int(0));
      }).status());
  int64_t left = params.tasks_limit;
  for (const int64_t key : unfinished) {
    if (left <= 0) {
      deleted.is_done = false;
      break;
    }
    ASSIGN_OR_RETURN(const int64_t num_tasks, DeleteTasks(key, left));
    if (num_tasks == left) deleted.is_done = false;
    if (num_tasks < left) {
      RETURN_IF_ERROR(Change(1, "-- forget_round\nDELETE FROM deleted_rounds WHERE round_key = ?", {key}));
    }
    left -= num_tasks;
  }
  return deleted;
}

absl::StatusOr<int64_t> SqlTaskStore::DeleteTasks(int64_t round_key, int64_t tasks_limit) {
  const int64_t first_of_round = round_key << 32;
  int64_t first = -1;
  RETURN_IF_ERROR(Run("-- find_first_task\nSELECT min(task_key) FROM tasks WHERE task_key BETWEEN ? AND ?",
                      {first_of_round, first_of_round | INT32_MAX},
                      [&](const SqlRow& row) { first = row.IsNull(0) ? -1 : row.Int(0); })
                      .status());
  if (first < 0) return 0;
  // A round's keys have no gaps, and it has no more contributions than tasks.
  const int64_t last = first + tasks_limit - 1;
  RETURN_IF_ERROR(Run("-- delete_contributions\nDELETE FROM contributions WHERE round_key = ? AND sequence <= ?",
                      {round_key, last - first_of_round + 1})
                      .status());
  RETURN_IF_ERROR(
      Run("-- delete_attempts\nDELETE FROM attempts WHERE task_key BETWEEN ? AND ?", {first, last}).status());
  RETURN_IF_ERROR(
      Run("-- delete_inputs\nDELETE FROM task_inputs WHERE task_key BETWEEN ? AND ?", {first, last}).status());
  return Run("-- delete_tasks\nDELETE FROM tasks WHERE task_key BETWEEN ? AND ?", {first, last});
}

absl::StatusOr<int64_t> SqlTaskStore::DeleteWorkers(const DeleteWorkersParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(FlushWorkers());
  int64_t left_over = -params.keep_max;
  RETURN_IF_ERROR(Run("-- count_workers\nSELECT count(*) FROM workers", {}, [&](const SqlRow& row) {
                    left_over += row.Int(0);
                  }).status());
  std::vector<WorkerKey> gone;
  RETURN_IF_ERROR(Run(R"(-- find_unseen_workers
      SELECT name, population, last_seen_time < ?
        FROM workers ORDER BY last_seen_time, name, population LIMIT ?)",
                      {ToSql(params.seen_before), params.limit},
                      [&](const SqlRow& row) {
                        const bool is_left_over = left_over-- > 0;
                        if (is_left_over || row.Int(2) != 0) gone.emplace_back(row.String(1), WorkerName(row.Bytes(0)));
                      })
                      .status());
  int64_t num_deleted = 0;
  for (const WorkerKey& key : gone) {
    if (!leases_.HeldBy(key.first, key.second).empty()) continue;
    RETURN_IF_ERROR(Change(1, "-- delete_worker\nDELETE FROM workers WHERE name = ? AND population = ?",
                           {SqlText(key.second.value()), SqlText(key.first)}));
    workers_.erase(key);
    std::erase(touched_workers_, key);
    ++num_deleted;
  }
  return num_deleted;
}

}  // namespace sheaf
