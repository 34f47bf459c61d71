// Workers.
#include <algorithm>
#include <utility>
#include <vector>

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
  if (known_workers_ == Known::kAllButForgotten) {
    RETURN_IF_ERROR(LoadWorkers());
    if (auto cached = workers_.find(key); cached != workers_.end()) return &cached->second;
  }
  Worker* worker = nullptr;
  if (known_workers_ == Known::kAll) return worker;
  RETURN_IF_ERROR(
      Run(R"(-- get_worker
      SELECT name, population, description, first_seen_time, last_seen_time, is_draining, num_leased, num_succeeded,
             num_failed, num_lost
        FROM workers WHERE name = ? AND population = ?)",
          {SqlText(key.second.value()), SqlText(key.first)},
          [&](const SqlRow& row) { worker = &(workers_[key] = {.record = ReadWorker(row), .is_stored = true}); })
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
  std::vector<SqlEngine::WorkerRow> rows;
  for (const WorkerKey& key : touched_workers_) {
    Worker& worker = workers_.at(key);
    if (!std::exchange(worker.is_dirty, false)) continue;
    rows.push_back(
        {.record = &worker.record, .is_stored = std::exchange(worker.is_stored, true), .place = &worker.place});
  }
  if (rows.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(batch_status_);
  return Broken(engine_->PutWorkers(rows));
}

absl::Status SqlTaskStore::LoadWorkers() {
  // What the batch has changed of a worker is in memory, and stays.
  size_t num_workers = 0;
  RETURN_IF_ERROR(Run(R"(-- load_workers
      SELECT name, population, description, first_seen_time, last_seen_time, is_draining, num_leased, num_succeeded,
             num_failed, num_lost
        FROM workers LIMIT ?)",
                      {static_cast<int64_t>(kCachedWorkersMax) + 1},
                      [&](const SqlRow& row) {
                        ++num_workers;
                        WorkerRecord worker = ReadWorker(row);
                        WorkerKey key{worker.population, worker.name};
                        workers_.try_emplace(std::move(key), Worker{.record = std::move(worker), .is_stored = true});
                      })
                      .status());
  known_workers_ = num_workers > kCachedWorkersMax ? Known::kSome : Known::kAll;
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
