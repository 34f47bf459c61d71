// Deleting what has ended.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "storage/arguments.h"
#include "storage/memory/memory_task_store.h"
#include "storage/transitions.h"

namespace sheaf {

absl::StatusOr<TaskStore::DeletedRounds> MemoryTaskStore::DeleteEndedRounds(const DeleteEndedRoundsParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  std::vector<const RoundRecord*> ended;
  for (const auto& [id, round] : rounds_) {
    if (IsFinal(round.record.state)) ended.push_back(&round.record);
  }
  std::sort(ended.begin(), ended.end(), [](const RoundRecord* a, const RoundRecord* b) {
    return std::tie(a->end_time, a->create_time, a->id) < std::tie(b->end_time, b->create_time, b->id);
  });
  std::map<std::string, int64_t> num_left;
  for (const RoundRecord* record : ended) {
    if (record->end_time > params.ended_by) ++num_left[record->population];
  }
  std::vector<int64_t> counts;
  for (const auto& [population, count] : num_left) counts.push_back(count);
  const int64_t keep_max = params.keep_max;
  int64_t num_due = std::accumulate(counts.begin(), counts.end(), -keep_max);
  const int64_t kept_max = KeptMax(std::move(counts), keep_max);
  DeletedRounds deleted;
  for (const RoundRecord* record : ended) {
    if (record->end_time > params.ended_by) {
      if (num_due <= 0 || num_left[record->population]-- <= kept_max) continue;
      --num_due;
    }
    if (static_cast<int64_t>(deleted.rounds.size()) == params.tasks_limit) {
      deleted.is_done = false;
      break;
    }
    deleted.rounds.push_back(record->id);
  }
  for (const RoundId& id : deleted.rounds) {
    auto round = std::make_shared<std::map<RoundId, Round>::node_type>(rounds_.extract(id));
    const std::string& digest = round->mapped().aggregate_digest;
    if (!digest.empty()) deleted.aggregate_digests.push_back(digest);
    for (const Task& task : round->mapped().tasks) {
      Task* const from = task.from ? FindTask(*task.from) : nullptr;
      if (from == nullptr || from->record.carried_to != task.record.id) continue;
      TaskRecord forgotten = from->record;
      forgotten.carried_to.reset();
      PutTask(*FindRound(task.from->round), *from, std::move(forgotten));
    }
    requests_.erase(round->mapped().record.request_id);
    rounds_by_age_.erase({round->mapped().record.create_time, id});
    undo_.push_back([this, round] {
      requests_.emplace(round->mapped().record.request_id, round->key());
      rounds_by_age_[{round->mapped().record.create_time, round->key()}] = &round->mapped();
      rounds_.insert(std::move(*round));
    });
  }
  return deleted;
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> MemoryTaskStore::ListWorkerAges(const ListWorkerAgesParams& params) {
  const size_t limit = static_cast<size_t>(std::max(params.limit, 0));
  std::vector<WorkerAge> page;
  for (auto it = workers_by_name_.upper_bound({params.after, params.after_population});
       it != workers_by_name_.end() && page.size() < limit; ++it) {
    const WorkerRecord& worker = *it->second;
    page.push_back({.name = worker.name, .population = worker.population, .last_seen_time = worker.last_seen_time});
  }
  return page;
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> MemoryTaskStore::DeleteWorkers(std::span<const WorkerAge> workers) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  std::vector<WorkerAge> deleted;
  for (const WorkerAge& worker : workers) {
    const WorkerKey key{worker.population, worker.name};
    const auto found = workers_.find(key);
    if (found == workers_.end() || found->second.last_seen_time != worker.last_seen_time) continue;
    const auto held = leases_.lower_bound({key, TaskId()});
    if (held != leases_.end() && held->first == key) continue;
    EraseWorker(key);
    deleted.push_back(worker);
  }
  return deleted;
}

}  // namespace sheaf
