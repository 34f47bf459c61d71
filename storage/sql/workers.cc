// Workers.
#include <algorithm>

#include "base/check.h"
#include "base/status_macros.h"
#include "storage/arguments.h"
#include "storage/sql/sql_task_store.h"

namespace sheaf {
namespace {

WorkerRecord ReadWorker(const SqlRow& row) {
  return {.name = WorkerName(row.Bytes(0)),
          .population = row.String(1),
          .description = row.String(2),
          .first_seen_time = row.Time(3),
          .last_seen_time = row.Time(4),
          .is_draining = row.Int(5) != 0,
          .num_leased = row.Int(6),
          .num_succeeded = row.Int(7),
          .num_failed = row.Int(8),
          .num_lost = row.Int(9)};
}

}  // namespace

absl::StatusOr<SqlTaskStore::Worker*> SqlTaskStore::FindWorker(const WorkerKey& key) {
  if (auto cached = workers_.find(key); cached != workers_.end()) return &cached->second;
  Worker* worker = nullptr;
  RETURN_IF_ERROR(Run(R"(-- get_worker
      SELECT name, population, description, first_seen_time, last_seen_time, is_draining, num_leased, num_succeeded,
             num_failed, num_lost
        FROM workers WHERE name = ? AND population = ?)",
                      {SqlText(key.second.value()), SqlText(key.first)},
                      [&](const SqlRow& row) { worker = &(workers_[key] = {.record = ReadWorker(row)}); })
                      .status());
  return worker;
}

void SqlTaskStore::Touch(const WorkerKey& key, Worker& worker) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (!worker.is_dirty) touched_workers_.push_back(key);
  worker.is_dirty = true;
}

absl::Status SqlTaskStore::CountForWorker(const Round& round, const WorkerName& name, int64_t WorkerRecord::*counter,
                                          int64_t by) {
  WorkerKey key{round.record.population, name};
  ASSIGN_OR_RETURN(Worker * worker, FindWorker(key));
  if (!worker) return absl::OkStatus();
  worker->record.*counter += by;
  Touch(key, *worker);
  return absl::OkStatus();
}

absl::Status SqlTaskStore::FlushWorkers() {
  for (const WorkerKey& key : touched_workers_) {
    Worker& worker = workers_.at(key);
    if (!worker.is_dirty) continue;
    const WorkerRecord& w = worker.record;
    RETURN_IF_ERROR(Change(
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
    worker.is_dirty = false;
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerRecord> SqlTaskStore::SawWorker(const SawWorkerParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  WorkerKey key{params.population, params.name};
  ASSIGN_OR_RETURN(Worker * worker, FindWorker(key));
  if (!worker) {
    worker = &workers_[key];
    worker->record = {.name = params.name, .population = params.population, .first_seen_time = params.now};
  }
  worker->record.description = params.description;
  worker->record.last_seen_time = params.now;
  Touch(key, *worker);
  return worker->record;
}

absl::StatusOr<std::vector<WorkerRecord>> SqlTaskStore::ListWorkers(const ListWorkersParams& params) {
  RETURN_IF_ERROR(FlushWorkers());
  std::vector<WorkerRecord> workers;
  RETURN_IF_ERROR(Run(R"(-- list_workers
      SELECT name, population, description, first_seen_time, last_seen_time, is_draining, num_leased, num_succeeded,
             num_failed, num_lost
        FROM workers WHERE name > ? AND (? = '' OR population = ?) ORDER BY name, population LIMIT ?)",
                      {SqlText(params.after.value()), SqlText(params.population), SqlText(params.population),
                       int64_t{std::max(params.limit, 0)}},
                      [&](const SqlRow& row) { workers.push_back(ReadWorker(row)); })
                      .status());
  return workers;
}

absl::StatusOr<WorkerRecord> SqlTaskStore::SetWorkerDraining(const SetWorkerDrainingParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  WorkerKey key{params.population, params.name};
  ASSIGN_OR_RETURN(Worker * worker, FindWorker(key));
  if (!worker) return NoSuchWorker(params.population, params.name);
  worker->record.is_draining = params.is_draining;
  Touch(key, *worker);
  return worker->record;
}

}  // namespace sheaf
