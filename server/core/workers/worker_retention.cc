#include "server/core/workers/worker_retention.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

constexpr absl::Duration kInterval = absl::Minutes(10);
// Between two parts.
constexpr absl::Duration kPause = absl::Milliseconds(20);
// After the store failed.
constexpr absl::Duration kRetryPause = absl::Seconds(10);
// Of one part: to look at a worker is 1. Some 5 ms where each says as much of itself as it may (worker_bytes_max), with
// the commit; a fraction of it where all say little.
constexpr int64_t kWorkPerTick = 1000;
constexpr int64_t kDeletionWork = 10;
// Bounds the memory. Looking through worker_records_max workers twice and deleting so many takes some 20 s: faster than
// workers_max new ones in ten minutes.
constexpr int64_t kCollectedMax = 10'000;

bool IsOlder(const TaskStore::WorkerAge& a, const TaskStore::WorkerAge& b) {
  return std::tie(a.last_seen_time, a.name) < std::tie(b.last_seen_time, b.name);
}

}  // namespace

void WorkerRetention::Tick(absl::Time now) {
  if (now < due_time_) return;
  due_time_ = now + kRetryPause;
  int64_t work_left = kWorkPerTick;
  bool is_done = false;
  while (!is_done && work_left > 0) {
    const absl::StatusOr<bool> step = Step(now, work_left);
    if (!step.ok()) return;  // The batch fails with it.
    is_done = *step;
  }
  due_time_ = now + (is_done && !is_more_due_ ? kInterval : kPause);
}

absl::StatusOr<bool> WorkerRetention::Step(absl::Time now, int64_t& work_left) {
  switch (phase_) {
    case Phase::kCounting:
      RETURN_IF_ERROR(CountSome(now, work_left));
      break;
    case Phase::kCollecting:
      RETURN_IF_ERROR(CollectSome(work_left));
      break;
    case Phase::kDeleting:
      RETURN_IF_ERROR(DeleteSome(work_left));
      break;
    case Phase::kForgetting:
      return ForgetSome(work_left);
  }
  return false;
}

absl::Status WorkerRetention::CountSome(absl::Time now, int64_t& work_left) {
  const int64_t limit = work_left;
  ASSIGN_OR_RETURN(const std::vector<WorkerAge> page, ReadPage(limit));
  const absl::Time seen_before = now - context_.limits.ended_keep;
  std::vector<WorkerAge> old;
  size_t num_seen = 0;
  for (; num_seen < page.size() && work_left > static_cast<int64_t>(old.size()) * kDeletionWork; ++num_seen) {
    --work_left;
    if (page[num_seen].last_seen_time < seen_before) old.push_back(page[num_seen]);
  }
  ASSIGN_OR_RETURN(const std::vector<WorkerAge> deleted, Delete(old, work_left));
  auto next_deleted = deleted.begin();
  for (size_t i = 0; i < num_seen; ++i) {
    if (next_deleted != deleted.end() && page[i] == *next_deleted) {
      ++next_deleted;
    } else {
      Count(page[i].population);
    }
  }
  if (num_seen > 0) cursor_ = page[num_seen - 1];
  if (num_seen == page.size() && num_seen < static_cast<size_t>(limit)) {
    BeginPhase(FindSurplus() ? Phase::kCollecting : Phase::kForgetting);
  }
  return absl::OkStatus();
}

bool WorkerRetention::FindSurplus() {
  // Who calls now is not forgotten.
  const int64_t keep_max = std::max(context_.limits.worker_records_max, context_.limits.workers_max);
  num_surplus_ = num_workers_ - keep_max;
  is_more_due_ = false;
  if (num_surplus_ <= 0) return false;
  num_wanted_ = std::min(num_surplus_, kCollectedMax);
  int64_t left = keep_max;
  int64_t num_larger = static_cast<int64_t>(counts_.size());
  for (const auto& [count, num_populations] : num_populations_with_) {
    // These and all that are larger get an equal part.
    if (count > left / num_larger) break;
    left -= count * num_populations;
    num_larger -= num_populations;
  }
  kept_max_ = left / num_larger;
  const auto next = num_populations_with_.find(kept_max_ + 1);
  num_spared_ = next == num_populations_with_.end() ? 0 : std::min(left % num_larger, next->second);
  return true;
}

absl::Status WorkerRetention::CollectSome(int64_t& work_left) {
  const int64_t limit = work_left;
  ASSIGN_OR_RETURN(std::vector<WorkerAge> page, ReadPage(limit));
  work_left -= static_cast<int64_t>(page.size());
  const bool is_last = static_cast<int64_t>(page.size()) < limit;
  if (!page.empty()) cursor_ = page.back();
  for (WorkerAge& worker : page) {
    Oldest* oldest = FindOldest(worker.population);
    if (!oldest) continue;
    std::vector<WorkerAge>& heap = oldest->workers;
    if (static_cast<int64_t>(heap.size()) == oldest->num_max) {
      if (!IsOlder(worker, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), IsOlder);
      heap.pop_back();
    }
    heap.push_back(std::move(worker));
    std::push_heap(heap.begin(), heap.end(), IsOlder);
  }
  if (is_last) BeginPhase(Phase::kDeleting);
  return absl::OkStatus();
}

WorkerRetention::Oldest* WorkerRetention::FindOldest(const std::string& population) {
  if (const auto known = collected_.find(population); known != collected_.end()) return &known->second;
  const auto count = counts_.find(population);
  // One that came since is counted next time.
  if (count == counts_.end() || count->second <= kept_max_ || num_wanted_ == 0) return nullptr;
  if (count->second == kept_max_ + 1 && num_spared_ > 0) {
    --num_spared_;
    count->second = 0;
    return nullptr;
  }
  Oldest& oldest = collected_[population];
  oldest.num_max = std::min(count->second - kept_max_, num_wanted_);
  num_wanted_ -= oldest.num_max;
  return &oldest;
}

absl::Status WorkerRetention::DeleteSome(int64_t& work_left) {
  std::vector<WorkerAge> part;
  for (int64_t left = work_left; left > 0 && !collected_.empty(); left -= kDeletionWork) {
    std::vector<WorkerAge>& workers = collected_.begin()->second.workers;
    part.push_back(std::move(workers.back()));
    workers.pop_back();
    if (workers.empty()) collected_.erase(collected_.begin());
  }
  if (part.empty()) {
    BeginPhase(Phase::kForgetting);
    return absl::OkStatus();
  }
  // Where the store fails they are found again next time.
  ASSIGN_OR_RETURN(const std::vector<WorkerAge> deleted, Delete(part, work_left));
  // Unless all of them called meanwhile or hold tasks: then the rest waits like others.
  if (!deleted.empty()) is_more_due_ = num_surplus_ > kCollectedMax;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> WorkerRetention::Delete(const std::vector<WorkerAge>& workers,
                                                                          int64_t& work_left) {
  if (workers.empty()) return std::vector<WorkerAge>();
  ASSIGN_OR_RETURN(std::vector<WorkerAge> deleted, context_.store.DeleteWorkers(workers));
  work_left -= static_cast<int64_t>(workers.size()) * kDeletionWork;
  context_.executor.Defer([this, num_deleted = static_cast<int64_t>(deleted.size())](const absl::Status& commit) {
    if (commit.ok()) num_deleted_ += num_deleted;
  });
  return deleted;
}

bool WorkerRetention::ForgetSome(int64_t& work_left) {
  for (; work_left > 0 && !counts_.empty(); --work_left) counts_.erase(counts_.begin());
  if (!counts_.empty()) return false;
  num_populations_with_.clear();
  num_workers_ = 0;
  BeginPhase(Phase::kCounting);
  context_.executor.Defer([this](const absl::Status& /*commit*/) {
    if (num_deleted_ > 0) LogInfo("{} workers not seen for long were forgotten", num_deleted_);
    num_deleted_ = 0;
  });
  return true;
}

absl::StatusOr<std::vector<TaskStore::WorkerAge>> WorkerRetention::ReadPage(int64_t limit) {
  return context_.store.ListWorkerAges(
      {.after = cursor_.name, .after_population = cursor_.population, .limit = static_cast<int>(limit)});
}

void WorkerRetention::BeginPhase(Phase phase) {
  phase_ = phase;
  cursor_ = WorkerAge();
}

void WorkerRetention::Count(const std::string& population) {
  int64_t& count = counts_[population];
  if (count > 0) {
    const auto num_populations = num_populations_with_.find(count);
    if (--num_populations->second == 0) num_populations_with_.erase(num_populations);
  }
  ++num_populations_with_[++count];
  ++num_workers_;
}

}  // namespace sheaf
