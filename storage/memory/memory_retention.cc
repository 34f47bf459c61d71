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

absl::StatusOr<int64_t> MemoryTaskStore::DeleteWorkers(const DeleteWorkersParams& params) {
  SHEAF_CHECK(is_in_batch_, "writing needs a batch");
  using Place = std::tuple<absl::Time, WorkerName, std::string>;
  int64_t num_deleted = 0;
  int64_t num_looked_at = 0;
  // The first `num_due` of these, in their order, unless they hold a task.
  const auto remove = [&](std::vector<Place> places, int64_t num_due) {
    std::sort(places.begin(), places.end());
    for (const auto& [last_seen_time, name, population] : places) {
      if (num_due-- <= 0 || num_looked_at == params.limit) return;
      ++num_looked_at;
      const WorkerKey key{population, name};
      const auto held = leases_.lower_bound({key, TaskId()});
      if (held != leases_.end() && held->first == key) continue;
      undo_.push_back([this, key, record = workers_.at(key)] { workers_[key] = record; });
      workers_.erase(key);
      ++num_deleted;
    }
  };
  std::vector<Place> unseen;
  for (const auto& [key, record] : workers_) {
    if (record.last_seen_time < params.seen_before) unseen.emplace_back(record.last_seen_time, key.second, key.first);
  }
  remove(std::move(unseen), params.limit);

  std::map<std::string, std::vector<Place>> by_population;
  for (const auto& [key, record] : workers_) {
    by_population[key.first].emplace_back(record.last_seen_time, key.second, key.first);
  }
  std::vector<int64_t> counts;
  std::vector<Place> most;
  for (const auto& [population, places] : by_population) {
    counts.push_back(static_cast<int64_t>(places.size()));
    if (places.size() > most.size()) most = places;
  }
  const int64_t total = static_cast<int64_t>(workers_.size());
  if (total <= params.keep_max) return num_deleted;
  const int64_t surplus = static_cast<int64_t>(most.size()) - KeptMax(std::move(counts), params.keep_max);
  remove(std::move(most), std::min(surplus, total - params.keep_max));
  return num_deleted;
}

}  // namespace sheaf
