// Rounds and workers.
#include <algorithm>
#include <set>

#include "base/check.h"
#include "storage/arguments.h"
#include "storage/memory/memory_task_store.h"
#include "storage/transitions.h"

namespace sheaf {

absl::StatusOr<TaskStore::CreateRoundResult> MemoryTaskStore::CreateRound(const CreateRoundParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  const RoundId& id = params.round.id;
  if (auto earlier = requests_.find(params.round.request_id); earlier != requests_.end()) {
    staged_.erase(id);
    return CreateRoundResult{.round = Show(rounds_.at(earlier->second)), .created = false};
  }
  if (!params.may_create) {
    staged_.erase(id);
    return NoSuchRequest(params.round.request_id);
  }
  if (rounds_.contains(id)) return RoundIsThere(id);
  const auto staged = staged_.find(id);
  if (staged != staged_.end() || params.num_staged > 0) {
    const bool is_staged = staged != staged_.end() &&
                           static_cast<int64_t>(staged->second.tasks.size()) == params.num_staged &&
                           staged->second.record.create_time == params.round.create_time;
    if (!is_staged) return NotStaged(id, params.num_staged);
    rounds_.insert(staged_.extract(staged));
  }

  Round& round = rounds_[id];
  round.record = FreshRound(params);
  std::swap(round.spec, round.record.spec);
  round.checkpoint_progress = round.record.progress;
  Index(round.record);
  requests_.emplace(params.round.request_id, id);
  rounds_by_age_[{params.round.create_time, id}] = &round;
  AddTasks(id, params.round.create_time, params.tasks, round);
  for (const Task& task : round.tasks) Index(round, task.record);
  undo_.push_back([this, id] {
    Round& created = rounds_.at(id);
    for (const Task& task : created.tasks) Unindex(created, task.record);
    Unindex(created.record);
    requests_.erase(created.record.request_id);
    rounds_by_age_.erase({created.record.create_time, id});
    rounds_.erase(id);
  });
  return CreateRoundResult{.round = Show(round), .created = true};
}

void MemoryTaskStore::AddTasks(const RoundId& id, absl::Time create_time, std::span<const NewTask> tasks,
                               Round& round) {
  for (const NewTask& input : tasks) {
    TaskId task_id{id, static_cast<int32_t>(round.tasks.size())};
    round.tasks.push_back(
        {.record = {.id = task_id, .create_time = create_time, .available_time = create_time}, .input = input});
  }
}

absl::Status MemoryTaskStore::StageTasks(const StageTasksParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  const auto found = staged_.find(params.round);
  const size_t num_staged = found == staged_.end() ? 0 : found->second.tasks.size();
  if (static_cast<int64_t>(num_staged) != params.num_staged) return NotStaged(params.round, params.num_staged);
  if (rounds_.contains(params.round)) return RoundIsThere(params.round);
  Round& round = staged_[params.round];
  if (found == staged_.end()) round.record.create_time = params.create_time;
  AddTasks(params.round, round.record.create_time, params.tasks, round);
  undo_.push_back([this, id = params.round] { staged_.erase(id); });
  return absl::OkStatus();
}

absl::StatusOr<RoundRecord> MemoryTaskStore::GetRound(const RoundId& id) {
  Round* round = FindRound(id);
  if (!round) return NoSuchRound(id);
  return Show(*round);
}

absl::StatusOr<TaskCounts> MemoryTaskStore::CountTasks(const RoundId& id) {
  Round* round = FindRound(id);
  if (!round) return NoSuchRound(id);
  return round->record.tasks;
}

std::optional<absl::Time> MemoryTaskStore::FirstAvailable(const RoundId& id) const {
  const auto found = rounds_.find(id);
  if (found == rounds_.end()) return std::nullopt;
  const std::map<absl::Time, int64_t>& since = found->second.queued_since;
  return since.empty() ? absl::InfiniteFuture() : since.begin()->first;
}

absl::StatusOr<std::vector<RoundRecord>> MemoryTaskStore::ListRounds(const ListRoundsParams& params) {
  // The newest first.
  auto newer = rounds_by_age_.end();
  if (!params.after.empty()) {
    const Round* after = FindRound(params.after);
    if (!after) return NoSuchRound(params.after);
    newer = rounds_by_age_.find({after->record.create_time, after->record.id});
  }
  std::vector<RoundRecord> page;
  while (newer != rounds_by_age_.begin() && page.size() < static_cast<size_t>(std::max(params.limit, 0))) {
    const Round& round = *(--newer)->second;
    const RoundRecord& record = round.record;
    bool is_wanted = (params.population.empty() || params.population == record.population) &&
                     (params.job.empty() || params.job == record.job) &&
                     (params.states.empty() || std::count(params.states.begin(), params.states.end(), record.state));
    if (is_wanted) page.push_back(Show(round));
  }
  return page;
}

absl::StatusOr<RoundRecord> MemoryTaskStore::MoveRound(const MoveRoundParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  Round* round = FindRound(params.round);
  if (!round) return NoSuchRound(params.round);
  if (round->record.state != params.from) return RoundIsElsewhere(params.round, round->record.state, params.from);

  RoundRecord next = round->record;
  next.state = params.to;
  ++next.version;
  if (IsFinal(params.to)) next.end_time = params.now;
  if (params.to == RoundState::kFailed || params.to == RoundState::kCancelled) next.error = params.error;
  if (params.to == RoundState::kSucceeded) {
    next.aggregate = params.aggregate;
    round->aggregate_digest = params.aggregate_digest;
    undo_.push_back([round] { round->aggregate_digest.clear(); });
  }
  if (IsOpening(params)) {
    next.broadcast_digest = params.broadcast_digest;
    next.deadline_time = params.deadline_time;
  }
  if (params.to != RoundState::kCollecting) {
    for (Task& task : round->tasks) {
      if (IsEnded(task.record.state)) continue;
      TaskRecord ended = task.record;
      if (ended.state == TaskState::kLeased) {
        ended = CancelAttempts(task, "", params.now);
      }
      ended.state = TaskState::kCancelled;
      ended.end_time = params.now;
      MoveTask(*round, task, std::move(ended), next);
    }
  }
  PutRound(*round, std::move(next));
  return Show(*round);
}

absl::StatusOr<std::vector<TaskRecord>> MemoryTaskStore::CarryOver(const CarryOverParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  if (absl::Status status = CheckArguments(params); !status.ok()) return status;
  Round* from = FindRound(params.from);
  if (!from) return NoSuchRound(params.from);
  Round* to = FindRound(params.to);
  if (!to) return NoSuchRound(params.to);
  if (from->record.population != to->record.population) return CannotCarryOver(from->record, to->record);
  if (from->record.state != RoundState::kCollecting) {
    return RoundIsElsewhere(params.from, from->record.state, RoundState::kCollecting);
  }
  if (!HandsOutTasks(to->record.state)) return RoundHasStopped(params.to, to->record.state);

  std::vector<TaskRecord> carried;
  RoundRecord left = from->record;
  RoundRecord joined = to->record;
  for (Task& task : from->tasks) {
    if (static_cast<int64_t>(carried.size()) == params.tasks_max) break;
    if (task.record.state != TaskState::kLeased || task.record.staleness >= params.staleness_max) continue;
    const TaskRecord next =
        AsCarried(task.record, {params.to, static_cast<int32_t>(to->tasks.size())}, joined.create_time);
    std::vector<AttemptRecord> attempts = {{.number = 1, .worker = next.worker, .lease_time = next.lease_time}};
    if (const auto& second = next.second_lease) {
      attempts.push_back({.number = 2, .worker = second->worker, .lease_time = second->lease_time});
    }
    TaskRecord ended = CancelAttempts(task, CarriedTo(params.to), params.now);
    ended.state = TaskState::kCancelled;
    ended.end_time = params.now;
    ended.carried_to = next.id;
    MoveTask(*from, task, std::move(ended), left);
    to->tasks.push_back({.record = next, .input = {}, .attempts = std::move(attempts), .from = task.record.id});
    Index(*to, next);
    undo_.push_back([this, to] {
      Unindex(*to, to->tasks.back().record);
      to->tasks.pop_back();
    });
    ++joined.tasks.leased;
    carried.push_back(next);
  }
  if (carried.empty()) return carried;
  ++left.version;
  ++joined.version;
  PutRound(*from, std::move(left));
  PutRound(*to, std::move(joined));
  return carried;
}

absl::StatusOr<TaskStore::BlobUse> MemoryTaskStore::GetBlobUse(const std::string& digest) {
  BlobUse use = BlobUse::kNone;
  if (digest.empty()) return use;
  for (const auto& [id, round] : rounds_) {
    const bool is_broadcast = round.record.broadcast_digest == digest;
    if (round.aggregate_digest == digest || (is_broadcast && !IsFinal(round.record.state))) return BlobUse::kCurrent;
    if (is_broadcast) use = BlobUse::kFormer;
  }
  return use;
}

absl::StatusOr<std::vector<std::string>> MemoryTaskStore::ListFormerBroadcasts() {
  std::set<std::string> former;
  for (const auto& [id, round] : rounds_) former.insert(round.record.broadcast_digest);
  former.erase("");
  for (const auto& [id, round] : rounds_) {
    former.erase(round.aggregate_digest);
    if (!IsFinal(round.record.state)) former.erase(round.record.broadcast_digest);
  }
  return std::vector<std::string>(former.begin(), former.end());
}

absl::StatusOr<WorkerRecord> MemoryTaskStore::SawWorker(const SawWorkerParams& params) {
  WorkerKey key{params.population, params.name};
  auto found = workers_.find(key);
  WorkerRecord record;
  if (found == workers_.end()) {
    record = {.name = params.name, .population = params.population, .first_seen_time = params.now};
  } else {
    record = found->second;
  }
  record.description = params.description;
  record.last_seen_time = params.now;
  PutWorker(key, record);
  return record;
}

absl::StatusOr<std::vector<WorkerRecord>> MemoryTaskStore::ListWorkers(const ListWorkersParams& params) {
  const size_t limit = static_cast<size_t>(std::max(params.limit, 0));
  std::vector<WorkerRecord> page;
  if (!params.population.empty()) {
    for (auto it = workers_.upper_bound({params.population, params.after});
         it != workers_.end() && it->first.first == params.population && page.size() < limit; ++it) {
      page.push_back(it->second);
    }
    return page;
  }
  for (const auto& [key, record] : workers_) {
    if (params.after.empty() || params.after < record.name) page.push_back(record);
  }
  std::sort(page.begin(), page.end(), [](const WorkerRecord& a, const WorkerRecord& b) {
    return std::tie(a.name, a.population) < std::tie(b.name, b.population);
  });
  if (page.size() > limit) page.resize(limit);
  return page;
}

absl::StatusOr<WorkerRecord> MemoryTaskStore::SetWorkerDraining(const SetWorkerDrainingParams& params) {
  WorkerKey key{params.population, params.name};
  auto found = workers_.find(key);
  if (found == workers_.end()) return NoSuchWorker(params.population, params.name);
  WorkerRecord record = found->second;
  record.is_draining = params.is_draining;
  PutWorker(key, record);
  return record;
}

}  // namespace sheaf
