#include "storage/memory/memory_task_store.h"

#include <algorithm>

#include "base/check.h"
#include "storage/arguments.h"
#include "storage/second_lease.h"
#include "storage/transitions.h"

namespace sheaf {

// --- Batches -------------------------------------------------------------------------------------

absl::Status MemoryTaskStore::BeginBatch() {
  SHEAF_CHECK(!is_in_batch_, "a batch is open already");
  is_in_batch_ = true;
  return absl::OkStatus();
}

absl::Status MemoryTaskStore::CommitBatch() {
  SHEAF_CHECK(is_in_batch_, "no batch is open");
  is_in_batch_ = false;
  undo_.clear();
  return absl::OkStatus();
}

void MemoryTaskStore::RollbackBatch() {
  SHEAF_CHECK(is_in_batch_, "no batch is open");
  is_in_batch_ = false;
  for (; !undo_.empty(); undo_.pop_back()) undo_.back()();
}

// --- Finding and showing rows --------------------------------------------------------------------

MemoryTaskStore::Round* MemoryTaskStore::FindRound(const RoundId& id) {
  auto found = rounds_.find(id);
  return found == rounds_.end() ? nullptr : &found->second;
}

MemoryTaskStore::Task* MemoryTaskStore::FindTask(const TaskId& id) {
  Round* round = FindRound(id.round);
  if (!round || id.index < 0 || static_cast<size_t>(id.index) >= round->tasks.size()) return nullptr;
  return &round->tasks[id.index];
}

absl::StatusOr<MemoryTaskStore::Task*> MemoryTaskStore::FindLease(const TaskId& id, const LeaseToken& token) {
  Task* task = FindTask(id);
  if (!task) return NoSuchTask(id);
  const TaskRecord& record = task->record;
  const bool is_leased = record.state == TaskState::kLeased;
  if (!is_leased || AsHeldUnder(record, token).lease_token != token) return LeaseIsGone(id, record.state);
  return task;
}

RoundRecord MemoryTaskStore::Show(const Round& round) {
  RoundRecord record = round.record;
  record.spec = round.spec;
  return record;
}

TaskRecord MemoryTaskStore::ShowState(const Task& task) {
  TaskRecord record = task.record;
  record.requirement = task.input.requirement;
  return record;
}

TaskRecord MemoryTaskStore::Show(const Task& task) {
  TaskRecord record = ShowState(task);
  record.payload = task.input.payload;
  record.data_selector = task.input.data_selector;
  return record;
}

// --- Changing rows -------------------------------------------------------------------------------

void MemoryTaskStore::Index(const RoundRecord& round) {
  if (HandsOutTasks(round.state)) deadlines_.emplace(round.deadline_time, round.id);
}

void MemoryTaskStore::Unindex(const RoundRecord& round) { deadlines_.erase({round.deadline_time, round.id}); }

void MemoryTaskStore::Index(Round& round, const TaskRecord& task) {
  if (task.state == TaskState::kQueued) {
    round.queued[round.tasks[task.id.index].input.requirement].insert(task.id.index);
    availabilities_.emplace(task.available_time, task.id);
    ++round.queued_since[task.available_time];
  }
  if (task.state == TaskState::kLeased) {
    leases_.emplace(WorkerKey{round.record.population, task.worker}, task.id);
    expiries_.emplace(task.expire_time, task.id, false);
    if (task.origin) places_[*task.origin] = task.id;
    if (const auto& second = task.second_lease) {
      leases_.emplace(WorkerKey{round.record.population, second->worker}, task.id);
      expiries_.emplace(second->expire_time, task.id, true);
      ++round.taken[second->worker];
    } else if (MayBeLeasedAgain(task)) {
      round.single_leases.Insert(round.tasks[task.id.index].input.requirement, task.lease_time, task.id.index);
    }
  }
  if (task.state == TaskState::kLeased || task.state == TaskState::kSucceeded) ++round.taken[task.worker];
}

void MemoryTaskStore::Unindex(Round& round, const TaskRecord& task) {
  if (task.state == TaskState::kQueued) {
    round.queued[round.tasks[task.id.index].input.requirement].erase(task.id.index);
    availabilities_.erase({task.available_time, task.id});
    const auto since = round.queued_since.find(task.available_time);
    if (--since->second == 0) round.queued_since.erase(since);
  }
  if (task.state == TaskState::kLeased) {
    leases_.erase({WorkerKey{round.record.population, task.worker}, task.id});
    expiries_.erase({task.expire_time, task.id, false});
    // Its next place may be there already.
    if (const auto place = task.origin ? places_.find(*task.origin) : places_.end();
        place != places_.end() && place->second == task.id) {
      places_.erase(place);
    }
    if (const auto& second = task.second_lease) {
      leases_.erase({WorkerKey{round.record.population, second->worker}, task.id});
      expiries_.erase({second->expire_time, task.id, true});
      --round.taken[second->worker];
    } else if (!task.origin) {
      round.single_leases.Erase(round.tasks[task.id.index].input.requirement, task.lease_time, task.id.index);
    }
  }
  if (task.state == TaskState::kLeased || task.state == TaskState::kSucceeded) --round.taken[task.worker];
}

void MemoryTaskStore::PutRound(Round& round, RoundRecord record) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  Unindex(round.record);
  std::swap(round.record, record);
  Index(round.record);
  undo_.push_back([this, &round, image = std::move(record)]() mutable {
    Unindex(round.record);
    round.record = std::move(image);
    Index(round.record);
  });
}

void MemoryTaskStore::PutTask(Round& round, Task& task, TaskRecord record) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  SHEAF_CHECK(record.state == task.record.state || IsLegalMove(task.record.state, record.state),
              "task {} cannot move from {} to {}", record.id.ToString(), Name(task.record.state), Name(record.state));
  Unindex(round, task.record);
  std::swap(task.record, record);
  Index(round, task.record);
  undo_.push_back([this, &round, &task, image = std::move(record)]() mutable {
    Unindex(round, task.record);
    task.record = std::move(image);
    Index(round, task.record);
  });
}

void MemoryTaskStore::PutAttempts(Task& task, std::vector<AttemptRecord> attempts) {
  std::swap(task.attempts, attempts);
  undo_.push_back([&task, image = std::move(attempts)]() mutable { task.attempts = std::move(image); });
}

void MemoryTaskStore::PutWorker(const WorkerKey& key, const WorkerRecord& record) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  auto [worker, is_new] = workers_.try_emplace(key, record);
  if (is_new) {
    workers_by_name_[{key.second, key.first}] = &worker->second;
    undo_.push_back([this, key] {
      workers_.erase(key);
      workers_by_name_.erase({key.second, key.first});
    });
    return;
  }
  // By key: the row may have been deleted and put back by then.
  undo_.push_back([this, key, image = worker->second] { workers_[key] = image; });
  worker->second = record;
}

void MemoryTaskStore::EraseWorker(const WorkerKey& key) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  undo_.push_back([this, key, image = workers_.at(key)] {
    WorkerRecord& worker = workers_[key] = image;
    workers_by_name_[{key.second, key.first}] = &worker;
  });
  workers_.erase(key);
  workers_by_name_.erase({key.second, key.first});
}

void MemoryTaskStore::PutEnding(Task& task, int32_t number, const AttemptEnding& ending) {
  std::vector<AttemptRecord> attempts = task.attempts;
  const auto attempt = std::find_if(attempts.begin(), attempts.end(),
                                    [&](const AttemptRecord& candidate) { return candidate.number == number; });
  SHEAF_CHECK(attempt != attempts.end(), "task {} has no attempt {}", task.record.id.ToString(), number);
  attempt->outcome = ending.outcome;
  attempt->error = ending.error;
  attempt->timings = ending.timings;
  attempt->bytes_up = ending.bytes_up;
  attempt->end_time = ending.now;
  PutAttempts(task, std::move(attempts));
}

TaskRecord MemoryTaskStore::CloseAttempt(Task& task, TaskRecord seen, const AttemptEnding& ending) {
  PutEnding(task, seen.attempt, ending);
  EndFirstLease(seen);
  return seen;
}

TaskRecord MemoryTaskStore::CancelAttempts(Task& task, const std::string& error, absl::Time now) {
  TaskRecord next = task.record;
  while (next.attempt != 0) {
    next = CloseAttempt(task, std::move(next), {.outcome = AttemptOutcome::kCancelled, .error = error, .now = now});
  }
  return next;
}

void MemoryTaskStore::MoveTask(Round& round, Task& task, TaskRecord next, RoundRecord& counts) {
  --CountOf(counts.tasks, task.record.state);
  ++CountOf(counts.tasks, next.state);
  PutTask(round, task, std::move(next));
}

void MemoryTaskStore::CountForWorker(const Round& round, const WorkerName& worker, int64_t WorkerRecord::*counter,
                                     int64_t by) {
  WorkerKey key{round.record.population, worker};
  auto found = workers_.find(key);
  if (found == workers_.end()) return;
  WorkerRecord record = found->second;
  record.*counter += by;
  PutWorker(key, record);
}

}  // namespace sheaf
