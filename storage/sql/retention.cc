// Deleting what has ended.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"
#include "storage/sql/state_names.h"

namespace sheaf {

absl::StatusOr<TaskStore::DeletedRounds> SqlTaskStore::DeleteEndedRounds(const DeleteEndedRoundsParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(WriteNotes());
  RETURN_IF_ERROR(FlushRounds());
  DeletedRounds deleted;
  std::vector<std::pair<int64_t, RoundId>> gone;
  const auto add = [&](const SqlRow& row) { gone.emplace_back(row.Int(0), RoundId(row.Bytes(1))); };
  // One more than fits, to know whether there is more.
  const int64_t rounds_max = params.tasks_limit + 1;
  RETURN_IF_ERROR(Run(R"(-- find_old_rounds
      SELECT round_key, id FROM rounds WHERE $HAS_ENDED AND end_time <= ?
       ORDER BY end_time, create_time, id LIMIT ?)"_sql,
                      {ToSql(params.ended_by), rounds_max}, add)
                      .status());
  std::map<std::string, int64_t> num_left;
  std::vector<int64_t> counts;
  RETURN_IF_ERROR(Run(R"(-- count_ended
      SELECT population, count(*) FROM rounds WHERE $HAS_ENDED AND end_time > ? GROUP BY population)"_sql,
                      {ToSql(params.ended_by)},
                      [&](const SqlRow& row) {
                        num_left[row.String(0)] = row.Int(1);
                        counts.push_back(row.Int(1));
                      })
                      .status());
  // Of the others so many, each the oldest of a population that has more than it may keep.
  int64_t num_due = std::accumulate(counts.begin(), counts.end(), -params.keep_max);
  if (num_due > 0) {
    const int64_t kept_max = KeptMax(std::move(counts), params.keep_max);
    num_due = std::min(num_due, rounds_max);
    RETURN_IF_ERROR(Run(R"(-- find_ended
        SELECT round_key, id, population FROM rounds
         WHERE $HAS_ENDED AND end_time > ? ORDER BY end_time, create_time, id)"_sql,
                        {ToSql(params.ended_by)},
                        [&](const SqlRow& row) {
                          if (num_due == 0 || num_left[row.String(2)]-- <= kept_max) return;
                          --num_due;
                          add(row);
                        })
                        .status());
  }
  deleted.is_done = static_cast<int64_t>(gone.size()) <= params.tasks_limit;
  if (!deleted.is_done) gone.resize(static_cast<size_t>(params.tasks_limit));
  std::vector<int64_t> keys;
  for (auto& [key, id] : gone) {
    keys.push_back(key);
    deleted.rounds.push_back(std::move(id));
    RETURN_IF_ERROR(Run("-- get_aggregate_digest\nSELECT aggregate_digest FROM round_texts WHERE round_key = ?", {key},
                        [&](const SqlRow& row) {
                          if (!row.String(0).empty()) deleted.aggregate_digests.push_back(row.String(0));
                        })
                        .status());
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    RETURN_IF_ERROR(Change(1, "-- delete_round\nINSERT INTO deleted_rounds (round_key) VALUES (?)", {keys[i]}));
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
  for (const auto& [id, staged] : staged_) std::erase(unfinished, staged.round.key);
  int64_t left = params.tasks_limit;
  for (const int64_t key : unfinished) {
    if (left <= 0) {
      deleted.is_done = false;
      break;
    }
    ASSIGN_OR_RETURN(const int64_t num_tasks, DeleteTasks(key, left));
    // As many as tasks at most.
    ASSIGN_OR_RETURN(const int64_t num_requirements, Run(R"(-- delete_requirements
        DELETE FROM round_requirements WHERE round_key = ? AND number IN
          (SELECT number FROM round_requirements WHERE round_key = ? ORDER BY number LIMIT ?))",
                                                         {key, key, left}));
    const int64_t num_rows = std::max(num_tasks, num_requirements);
    if (num_rows == left) deleted.is_done = false;
    if (num_rows < left) {
      RETURN_IF_ERROR(Change(1, "-- forget_round\nDELETE FROM deleted_rounds WHERE round_key = ?", {key}));
    }
    left -= num_rows;
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
      Run("-- delete_second_leases\nDELETE FROM second_leases WHERE task_key BETWEEN ? AND ?", {first, last}).status());
  RETURN_IF_ERROR(
      Run("-- delete_carried\nDELETE FROM carried_tasks WHERE task_key BETWEEN ? AND ?", {first, last}).status());
  RETURN_IF_ERROR(
      Run("-- delete_inputs\nDELETE FROM task_inputs WHERE task_key BETWEEN ? AND ?", {first, last}).status());
  return Run("-- delete_tasks\nDELETE FROM tasks WHERE task_key BETWEEN ? AND ?", {first, last});
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> SqlTaskStore::ListWorkerAges(const ListWorkerAgesParams& params) {
  RETURN_IF_ERROR(FlushWorkers());
  std::vector<WorkerAge> workers;
  RETURN_IF_ERROR(
      Run(R"(-- list_worker_ages
      SELECT name, population, last_seen_time FROM workers
       WHERE (name, population) > (?, ?) ORDER BY name, population LIMIT ?)",
          {SqlText(params.after.value()), SqlText(params.after_population), int64_t{std::max(params.limit, 0)}},
          [&](const SqlRow& row) {
            workers.push_back(
                {.name = WorkerName(row.Bytes(0)), .population = row.String(1), .last_seen_time = row.Time(2)});
          })
          .status());
  return workers;
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> SqlTaskStore::DeleteWorkers(std::span<const WorkerAge> workers) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(FlushWorkers());
  std::vector<WorkerAge> idle;
  for (const WorkerAge& worker : workers) {
    if (leases_.HeldBy(worker.population, worker.name).empty()) idle.push_back(worker);
  }
  RETURN_IF_ERROR(batch_status_);
  auto deleted = engine_->DeleteWorkers(idle);
  RETURN_IF_ERROR(Broken(deleted.status()));
  // If the batch fails they are still there.
  if (!deleted->empty() && known_workers_ == Known::kAll) known_workers_ = Known::kAllButForgotten;
  for (const WorkerAge& worker : *deleted) workers_.erase({worker.population, worker.name});
  // They are flushed, and those that are no more cannot be again.
  std::erase_if(touched_workers_, [&](const WorkerKey& key) { return !workers_.contains(key); });
  return deleted;
}

}  // namespace sheaf
