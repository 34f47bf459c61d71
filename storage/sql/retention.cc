// Deleting what has ended.
#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"

namespace sheaf {

absl::StatusOr<TaskStore::DeletedRounds> SqlTaskStore::DeleteEndedRounds(const DeleteEndedRoundsParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  RETURN_IF_ERROR(FlushRounds());
  DeletedRounds deleted;
  struct Ended {
    int64_t key = 0;
    RoundId id;
    absl::Time end_time;
    absl::Time create_time;
    std::string aggregate_digest;
  };
  std::vector<Ended> gone;
  const auto add = [&](const SqlRow& row) {
    gone.push_back({.key = row.Int(0),
                    .id = RoundId(row.Bytes(1)),
                    .end_time = row.Time(2),
                    .create_time = row.Time(3),
                    .aggregate_digest = row.String(4)});
  };
  // One more than fits, to know whether there is more.
  const int64_t rounds_max = params.tasks_limit + 1;
  RETURN_IF_ERROR(Run(R"(-- find_old_rounds
      SELECT r.round_key, r.id, r.end_time, r.create_time, x.aggregate_digest
        FROM rounds r JOIN round_texts x ON x.round_key = r.round_key
       WHERE r.state >= 4 AND r.end_time <= ? ORDER BY r.end_time, r.create_time, r.id LIMIT ?)",
                      {ToSql(params.ended_by), rounds_max}, add)
                      .status());
  std::vector<std::string> populations;
  std::vector<int64_t> counts;
  RETURN_IF_ERROR(Run("-- count_ended\nSELECT population, count(*) FROM rounds WHERE state >= 4 AND end_time > ? "
                      "GROUP BY population",
                      {ToSql(params.ended_by)},
                      [&](const SqlRow& row) {
                        populations.push_back(row.String(0));
                        counts.push_back(row.Int(1));
                      })
                      .status());
  const int64_t kept_max = EndedKeptMax(counts, params.keep_max);
  for (size_t i = 0; i < populations.size(); ++i) {
    if (counts[i] <= kept_max) continue;
    RETURN_IF_ERROR(Run(R"(-- find_ended
        SELECT r.round_key, r.id, r.end_time, r.create_time, x.aggregate_digest
          FROM rounds r JOIN round_texts x ON x.round_key = r.round_key
         WHERE r.state >= 4 AND r.end_time > ? AND r.population = ?
         ORDER BY r.end_time, r.create_time, r.id LIMIT ?)",
                        {ToSql(params.ended_by), SqlText(populations[i]), std::min(counts[i] - kept_max, rounds_max)},
                        add)
                        .status());
  }
  std::sort(gone.begin(), gone.end(), [](const Ended& a, const Ended& b) {
    return std::tie(a.end_time, a.create_time, a.id) < std::tie(b.end_time, b.create_time, b.id);
  });
  deleted.is_done = static_cast<int64_t>(gone.size()) <= params.tasks_limit;
  if (!deleted.is_done) gone.resize(static_cast<size_t>(params.tasks_limit));
  std::vector<int64_t> keys;
  for (Ended& round : gone) {
    keys.push_back(round.key);
    deleted.rounds.push_back(std::move(round.id));
    if (!round.aggregate_digest.empty()) deleted.aggregate_digests.push_back(std::move(round.aggregate_digest));
  }
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
