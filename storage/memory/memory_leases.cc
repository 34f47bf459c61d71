// Leases, contributions, and looking at tasks.
#include <algorithm>

#include "base/check.h"
#include "storage/arguments.h"
#include "storage/memory/memory_task_store.h"
#include "storage/second_lease.h"
#include "storage/transitions.h"

namespace sheaf {

int64_t MemoryTaskStore::NumLeft(const Round& round, const WorkerName& worker, int32_t per_worker_max, size_t wanted) {
  if (per_worker_max == 0) return static_cast<int64_t>(wanted);
  const auto taken = round.taken.find(worker);
  return std::min(static_cast<int64_t>(wanted), per_worker_max - (taken == round.taken.end() ? 0 : taken->second));
}

absl::StatusOr<std::vector<TaskRecord>> MemoryTaskStore::LeaseTasks(const LeaseTasksParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  Round* round = FindRound(params.round);
  if (!round) return NoSuchRound(params.round);
  if (!HandsOutTasks(round->record.state)) return RoundHasStopped(params.round, round->record.state);
  const int64_t wanted = NumLeft(*round, params.worker, params.per_worker_max, params.tokens.size());
  std::set<int32_t> candidates;
  std::set<std::string> requirements(params.fulfilled_requirements.begin(), params.fulfilled_requirements.end());
  requirements.insert("");
  for (const std::string& requirement : requirements) {
    auto queued = round->queued.find(requirement);
    if (queued == round->queued.end()) continue;
    int64_t num_found = 0;
    for (int32_t index : queued->second) {
      if (num_found >= wanted) break;
      if (round->tasks[index].record.available_time > params.now) continue;
      candidates.insert(index);
      ++num_found;
    }
  }

  std::vector<TaskRecord> leased;
  RoundRecord counts = round->record;
  for (int32_t index : candidates) {
    if (static_cast<int64_t>(leased.size()) >= wanted) break;
    Task& task = round->tasks[index];
    TaskRecord next = task.record;
    next.state = TaskState::kLeased;
    next.worker = params.worker;
    next.lease_token = params.tokens[leased.size()];
    next.poll_id = params.poll_id;
    next.lease_time = params.now;
    next.expire_time = std::min(params.expire_time, params.attempt_deadline_time);
    next.attempt_deadline_time = params.attempt_deadline_time;
    next.attempt = ++next.num_attempts;
    OpenAttempt(task, {.number = next.attempt, .worker = params.worker, .lease_time = params.now});
    MoveTask(*round, task, std::move(next), counts);
    leased.push_back(Show(task));
  }
  if (!leased.empty()) {
    ++counts.version;
    PutRound(*round, std::move(counts));
    CountForWorker(*round, params.worker, &WorkerRecord::num_leased, static_cast<int64_t>(leased.size()));
  }
  return leased;
}

void MemoryTaskStore::OpenAttempt(Task& task, AttemptRecord attempt) {
  std::vector<AttemptRecord> attempts = task.attempts;
  const int32_t oldest_kept = attempt.number - kAttemptsKept + 1;
  attempts.push_back(std::move(attempt));
  std::erase_if(attempts, [&](const AttemptRecord& kept) {
    return kept.number < oldest_kept && kept.outcome != AttemptOutcome::kRunning;
  });
  PutAttempts(task, std::move(attempts));
}

absl::StatusOr<std::vector<TaskRecord>> MemoryTaskStore::LeaseAgain(const LeaseAgainParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  Round* round = FindRound(params.round);
  if (!round) return NoSuchRound(params.round);
  if (round->record.state != RoundState::kCollecting) {
    return RoundIsElsewhere(params.round, round->record.state, RoundState::kCollecting);
  }
  const int64_t wanted = NumLeft(*round, params.worker, params.per_worker_max, params.tokens.size());
  std::vector<int32_t> chosen;
  for (const int32_t index :
       round->single_leases.LongestHeld(params.fulfilled_requirements, params.begun_by, params.candidates_max)) {
    if (static_cast<int64_t>(chosen.size()) >= wanted) break;
    const TaskRecord& task = round->tasks[index].record;
    if (task.worker != params.worker && MayTryAgain(task, params)) chosen.push_back(index);
  }

  std::vector<TaskRecord> leased;
  for (const int32_t index : chosen) {
    Task& task = round->tasks[index];
    TaskRecord next = task.record;
    const LeaseToken& token = params.tokens[leased.size()];
    next.second_lease = {.worker = params.worker,
                         .lease_token = token,
                         .poll_id = params.poll_id,
                         .lease_time = params.now,
                         .expire_time = std::min(params.expire_time, params.attempt_deadline_time),
                         .attempt_deadline_time = params.attempt_deadline_time,
                         .progress = 0,
                         .attempt = ++next.num_attempts};
    OpenAttempt(task, {.number = next.num_attempts, .worker = params.worker, .lease_time = params.now});
    PutTask(*round, task, std::move(next));
    leased.push_back(AsHeldUnder(Show(task), token));
  }
  if (!leased.empty()) {
    RoundRecord counts = round->record;
    ++counts.version;
    PutRound(*round, std::move(counts));
    CountForWorker(*round, params.worker, &WorkerRecord::num_leased, static_cast<int64_t>(leased.size()));
  }
  return leased;
}

absl::StatusOr<absl::Time> MemoryTaskStore::FirstLeaseTime(const RoundId& id, absl::Time after) {
  const Round* round = FindRound(id);
  if (!round) return NoSuchRound(id);
  return round->single_leases.FirstAfter(after);
}

absl::StatusOr<std::vector<TaskRecord>> MemoryTaskStore::ListLeases(const std::string& population,
                                                                    const WorkerName& worker) {
  const WorkerKey key{population, worker};
  std::vector<TaskRecord> held;
  for (auto lease = leases_.lower_bound({key, TaskId()}); lease != leases_.end() && lease->first == key; ++lease) {
    held.push_back(AsHeldBy(*GetTaskState(lease->second), worker));
  }
  return held;
}

absl::StatusOr<TaskRecord> MemoryTaskStore::RenewLease(const RenewLeaseParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  auto task = FindLease(params.task, params.token);
  if (!task.ok()) return task.status();
  TaskRecord seen = AsHeldUnder((*task)->record, params.token);
  if (params.progress > seen.progress || params.attempt_deadline_time_max < seen.attempt_deadline_time) {
    const LeaseToken first = (*task)->record.lease_token;
    seen.attempt_deadline_time = std::min(seen.attempt_deadline_time, params.attempt_deadline_time_max);
    if (params.progress > seen.progress) seen.expire_time = params.expire_time;
    seen.progress = std::max(seen.progress, params.progress);
    seen.expire_time = std::min(seen.expire_time, seen.attempt_deadline_time);
    PutTask(*FindRound(params.task.round), **task, AsHeldUnder(std::move(seen), first));
  }
  return AsHeldUnder(ShowState(**task), params.token);
}

absl::StatusOr<std::vector<TaskRecord>> MemoryTaskStore::ListExpired(absl::Time now, int limit) {
  std::vector<TaskRecord> expired;
  for (const auto& [expire_time, id, is_second] : expiries_) {
    if (expire_time > now || expired.size() >= static_cast<size_t>(std::max(limit, 0))) break;
    TaskRecord task = ShowState(*FindTask(id));
    const LeaseToken token = is_second ? task.second_lease->lease_token : task.lease_token;
    expired.push_back(AsHeldUnder(std::move(task), token));
  }
  return expired;
}

absl::StatusOr<TaskRecord> MemoryTaskStore::EndAttempt(const EndAttemptParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  auto task = FindLease(params.task, params.token);
  if (!task.ok()) return task.status();
  Round& round = *FindRound(params.task.round);
  TaskRecord seen = AsHeldUnder((*task)->record, params.token);
  const WorkerName worker = seen.worker;
  TaskRecord next =
      CloseAttempt(**task, std::move(seen),
                   {.outcome = params.outcome, .error = params.error, .timings = params.timings, .now = params.now});
  RoundRecord counts = round.record;
  ++counts.version;
  if (params.outcome == AttemptOutcome::kFailed) {
    ++next.num_failed;
    ++counts.num_failed_attempts;
    CountForWorker(round, worker, &WorkerRecord::num_failed, 1);
  }
  if (params.outcome == AttemptOutcome::kLost) {
    ++next.num_lost;
    ++counts.num_lost_attempts;
    CountForWorker(round, worker, &WorkerRecord::num_lost, 1);
  }
  if (!params.error.empty()) next.last_error = params.error;
  // Another attempt runs.
  if (next.attempt != 0) {
    PutTask(round, **task, std::move(next));
    PutRound(round, std::move(counts));
    return ShowState(**task);
  }
  next.state = next.origin ? TaskState::kCancelled : params.to;
  if (next.state == TaskState::kQueued) {
    next.available_time = params.available_time;
  } else {
    next.end_time = params.now;
  }
  MoveTask(round, **task, std::move(next), counts);
  PutRound(round, std::move(counts));
  return ShowState(**task);
}

absl::StatusOr<bool> MemoryTaskStore::LimitTimes(const LimitTimesParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  Round* round = FindRound(params.round);
  if (!round) return NoSuchRound(params.round);
  if (!HandsOutTasks(round->record.state)) return RoundHasStopped(params.round, round->record.state);
  RoundRecord limited = round->record;
  limited.deadline_time = std::min(limited.deadline_time, params.deadline_time_max);
  bool has_changed = limited.deadline_time != round->record.deadline_time;
  for (Task& task : round->tasks) {
    if (task.record.origin) continue;
    TaskRecord next = task.record;
    if (next.state == TaskState::kLeased) {
      next.expire_time = std::min(next.expire_time, params.expire_time_max);
      next.attempt_deadline_time = std::min(next.attempt_deadline_time, params.attempt_deadline_time_max);
      if (next.second_lease) {
        SecondLease& second = *next.second_lease;
        second.expire_time = std::min(second.expire_time, params.expire_time_max);
        second.attempt_deadline_time = std::min(second.attempt_deadline_time, params.attempt_deadline_time_max);
      }
    } else if (next.state == TaskState::kQueued && next.available_time > params.available_time_max) {
      next.available_time = params.now;
    }
    if (next.expire_time == task.record.expire_time && next.available_time == task.record.available_time &&
        next.attempt_deadline_time == task.record.attempt_deadline_time &&
        next.second_lease == task.record.second_lease) {
      continue;
    }
    PutTask(*round, task, std::move(next));
    has_changed = true;
  }
  if (!has_changed) return false;
  ++limited.version;
  PutRound(*round, std::move(limited));
  return true;
}

absl::StatusOr<TaskRecord> MemoryTaskStore::RequeueTask(const RequeueTaskParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  Task* task = FindTask(params.task);
  if (!task) return NoSuchTask(params.task);
  Round& round = *FindRound(params.task.round);
  if (!HandsOutTasks(round.record.state)) return RoundHasStopped(params.task.round, round.record.state);
  TaskState state = task->record.state;
  if (state == TaskState::kSucceeded || state == TaskState::kCancelled) return CannotRequeue(params.task, state);
  if (task->record.origin) return CannotRunAgain(params.task, *task->record.origin);

  TaskRecord next = task->record;
  if (state == TaskState::kLeased) next = CancelAttempts(*task, "", params.now);
  next.num_failed = next.num_lost = 0;
  next.end_time = absl::InfiniteFuture();
  if (state == TaskState::kQueued) {
    next.available_time = std::min(next.available_time, params.now);
    PutTask(round, *task, std::move(next));
    return Show(*task);
  }
  next.state = TaskState::kQueued;
  next.available_time = params.now;
  RoundRecord counts = round.record;
  ++counts.version;
  MoveTask(round, *task, std::move(next), counts);
  PutRound(round, std::move(counts));
  return Show(*task);
}

absl::StatusOr<ContributionRecord> MemoryTaskStore::RecordContribution(const RecordContributionParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  Round* round = FindRound(params.task.round);
  if (!round || !FindTask(params.task)) return NoSuchTask(params.task);
  if (!TakesContribution(FindTask(params.task)->record, round->record.state)) {
    return RoundIsElsewhere(params.task.round, round->record.state, RoundState::kCollecting);
  }
  auto task = FindLease(params.task, params.token);
  if (!task.ok()) return task.status();

  TaskRecord seen = AsHeldUnder((*task)->record, params.token);
  const WorkerName worker = seen.worker;
  TaskRecord next = CloseAttempt(**task, std::move(seen),
                                 {.outcome = AttemptOutcome::kSucceeded,
                                  .timings = params.timings,
                                  .bytes_up = params.size_bytes,
                                  .now = params.now});
  if (next.attempt != 0) {
    next = CloseAttempt(**task, std::move(next),
                        {.outcome = AttemptOutcome::kCancelled, .error = kOtherAttemptWon, .now = params.now});
  }
  next.state = TaskState::kSucceeded;
  next.worker = worker;
  next.lease_token = params.token;
  next.end_time = params.now;
  RoundRecord counts = round->record;
  ++counts.version;
  ++counts.num_contributions;
  counts.num_clients += params.num_clients;
  counts.bytes_up += params.size_bytes;
  counts.progress = params.progress;
  MoveTask(*round, **task, std::move(next), counts);
  PutRound(*round, std::move(counts));
  CountForWorker(*round, worker, &WorkerRecord::num_succeeded, 1);
  round->contributions.push_back({.task = params.task,
                                  .sequence = round->record.num_contributions,
                                  .worker = worker,
                                  .lease_token = params.token,
                                  .digest = params.digest,
                                  .size_bytes = params.size_bytes,
                                  .num_clients = params.num_clients,
                                  .payload = params.payload,
                                  .accept_time = params.now,
                                  .staleness = (*task)->record.staleness});
  undo_.push_back([round] { round->contributions.pop_back(); });
  return round->contributions.back();
}

absl::StatusOr<std::vector<ContributionRecord>> MemoryTaskStore::ListContributions(const RoundId& id, int64_t after,
                                                                                   int limit) {
  Round* round = FindRound(id);
  if (!round) return NoSuchRound(id);
  std::vector<ContributionRecord> page;
  for (size_t i = std::max<int64_t>(after, 0); i < round->contributions.size(); ++i) {
    if (page.size() >= static_cast<size_t>(std::max(limit, 0))) break;
    page.push_back(round->contributions[i]);
  }
  return page;
}

absl::Status MemoryTaskStore::SaveCheckpoint(const SaveCheckpointParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  Round* round = FindRound(params.round);
  if (!round) return NoSuchRound(params.round);
  const RoundRecord& record = round->record;
  if (params.sequence < record.checkpoint_sequence || params.sequence > record.num_contributions) {
    return CheckpointGoesBack(record, params.sequence);
  }
  RoundRecord next = record;
  next.checkpoint = params.checkpoint;
  next.checkpoint_sequence = params.sequence;
  if (params.sequence == record.num_contributions) next.progress = params.progress;
  ++next.version;
  PutRound(*round, std::move(next));
  undo_.push_back([round, before = round->checkpoint_progress] { round->checkpoint_progress = before; });
  round->checkpoint_progress = params.progress;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> MemoryTaskStore::ForgetContributionsAfterCheckpoint(const RoundId& id, absl::Time now) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  Round* round = FindRound(id);
  if (!round) return NoSuchRound(id);
  if (IsFinal(round->record.state)) return RoundIsElsewhere(id, round->record.state, RoundState::kCollecting);
  int64_t num_forgotten = round->record.num_contributions - round->record.checkpoint_sequence;
  if (num_forgotten == 0) return 0;
  RoundRecord counts = round->record;
  ++counts.version;
  if (counts.state == RoundState::kSealing) counts.state = RoundState::kCollecting;
  counts.progress = round->checkpoint_progress;
  counts.num_contributions = counts.checkpoint_sequence;
  for (size_t i = counts.checkpoint_sequence; i < round->contributions.size(); ++i) {
    const ContributionRecord& forgotten = round->contributions[i];
    counts.num_clients -= forgotten.num_clients;
    counts.bytes_up -= forgotten.size_bytes;
    Task& task = *FindTask(forgotten.task);
    for (const AttemptRecord& attempt : std::vector<AttemptRecord>(task.attempts)) {
      if (attempt.outcome != AttemptOutcome::kSucceeded) continue;
      PutEnding(task, attempt.number,
                {.outcome = AttemptOutcome::kCancelled,
                 .error = kForgottenContribution,
                 .timings = attempt.timings,
                 .bytes_up = attempt.bytes_up,
                 .now = attempt.end_time});
    }
    TaskRecord next = task.record;
    EndFirstLease(next);
    next.state = next.origin ? TaskState::kCancelled : TaskState::kQueued;
    if (!next.origin) next.available_time = now;
    next.end_time = next.origin ? now : absl::InfiniteFuture();
    MoveTask(*round, task, std::move(next), counts);
  }
  PutRound(*round, std::move(counts));
  std::vector<ContributionRecord> image = round->contributions;
  round->contributions.resize(round->record.num_contributions);
  undo_.push_back([round, image = std::move(image)] { round->contributions = image; });
  return num_forgotten;
}

absl::StatusOr<TaskRecord> MemoryTaskStore::GetTask(const TaskId& id) {
  Task* task = FindTask(id);
  if (!task) return NoSuchTask(id);
  return Show(*task);
}

absl::StatusOr<TaskRecord> MemoryTaskStore::GetTaskState(const TaskId& id) {
  Task* task = FindTask(id);
  if (!task) return NoSuchTask(id);
  return ShowState(*task);
}

std::optional<TaskId> MemoryTaskStore::PlaceOf(const TaskId& name) const {
  const auto place = places_.find(name);
  return place == places_.end() ? std::nullopt : std::optional(place->second);
}

absl::StatusOr<std::vector<AttemptRecord>> MemoryTaskStore::ListAttempts(const TaskId& id) {
  Task* task = FindTask(id);
  if (!task) return NoSuchTask(id);
  return task->attempts;
}

template <typename Visit>
void MemoryTaskStore::ForEachTask(const ListTasksParams& params, Visit visit) {
  const RoundId first = std::max(params.round.value_or(RoundId()), params.after ? params.after->round : RoundId());
  for (auto it = rounds_.lower_bound(first); it != rounds_.end(); ++it) {
    auto& [id, round] = *it;
    if (params.round && *params.round != id) return;
    if (!params.population.empty() && params.population != round.record.population) continue;
    const bool is_continued = params.after && params.after->round == id;
    const size_t begin = is_continued ? static_cast<size_t>(std::max(int64_t{params.after->index} + 1, int64_t{0})) : 0;
    for (size_t i = begin; i < round.tasks.size(); ++i) {
      if (!visit(TaskId{id, static_cast<int32_t>(i)}, round.tasks[i])) return;
    }
  }
}

absl::StatusOr<std::vector<TaskRecord>> MemoryTaskStore::ListTasks(const ListTasksParams& params) {
  std::vector<TaskRecord> page;
  ForEachTask(params, [&](const TaskId& id, const Task& task) {
    if (page.size() >= static_cast<size_t>(std::max(params.limit, 0))) return false;
    if (params.until && id > *params.until) return false;
    const bool is_wanted =
        (params.states.empty() || std::count(params.states.begin(), params.states.end(), task.record.state)) &&
        (params.worker.empty() || params.worker == task.record.worker ||
         (task.record.second_lease && params.worker == task.record.second_lease->worker));
    if (is_wanted) page.push_back(Show(task));
    return true;
  });
  return page;
}

absl::StatusOr<std::optional<TaskId>> MemoryTaskStore::SkipTasks(const ListTasksParams& params) {
  int num_passed = 0;
  std::optional<TaskId> last;
  ForEachTask(params, [&](const TaskId& id, const Task& /*task*/) {
    if (++num_passed < params.limit) return true;
    last = id;
    return false;
  });
  return last;
}

absl::StatusOr<TaskStore::QueueRecord> MemoryTaskStore::DescribeQueue(const std::string& population, absl::Time now) {
  QueueRecord queue;
  for (const auto& [id, round] : rounds_) {
    const RoundRecord& record = round.record;
    if (!population.empty() && population != record.population) continue;
    if (!IsFinal(record.state)) ++queue.num_live_rounds;
    if (record.state != RoundState::kCollecting) continue;
    for (const Task& task : round.tasks) {
      ++CountOf(queue.tasks, task.record.state);
      if (task.record.state != TaskState::kQueued) continue;
      if (task.record.available_time > now) {
        ++queue.num_delayed;
      } else {
        queue.oldest_available_time = std::min(queue.oldest_available_time, task.record.available_time);
      }
    }
  }
  return queue;
}

absl::StatusOr<std::vector<std::string>> MemoryTaskStore::ListRequirements(const RoundId& id) {
  Round* round = FindRound(id);
  if (!round) return NoSuchRound(id);
  std::set<std::string> requirements;
  for (const Task& task : round->tasks) {
    if (!task.record.origin) requirements.insert(task.input.requirement);
  }
  return std::vector<std::string>(requirements.begin(), requirements.end());
}

absl::StatusOr<std::vector<int64_t>> MemoryTaskStore::CountQueued(const RoundId& id) {
  Round* round = FindRound(id);
  if (!round) return NoSuchRound(id);
  std::map<std::string, int64_t> counts;
  for (const Task& task : round->tasks) {
    if (task.record.origin) continue;
    const bool is_queued = task.record.state == TaskState::kQueued && HandsOutTasks(round->record.state);
    counts[task.input.requirement] += is_queued ? 1 : 0;
  }
  std::vector<int64_t> queued;
  for (const auto& [requirement, count] : counts) queued.push_back(count);
  return queued;
}

absl::StatusOr<absl::Time> MemoryTaskStore::NextDueTime(absl::Time now) {
  absl::Time due = absl::InfiniteFuture();
  auto consider = [&](const auto& index) {
    for (auto entry = index.lower_bound({now, {}}); entry != index.end(); ++entry) {
      if (entry->first <= now) continue;
      due = std::min(due, entry->first);
      return;
    }
  };
  for (const auto& [expire_time, id, is_second] : expiries_) {
    if (expire_time <= now) continue;
    due = expire_time;
    break;
  }
  consider(availabilities_);
  consider(deadlines_);
  return due;
}

}  // namespace sheaf
