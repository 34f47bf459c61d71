#include "storage/sql/lease_table.h"

#include <iterator>

namespace sheaf {

void LeaseTable::Put(const std::string& population, TaskRecord task) {
  task.payload.clear();
  task.data_selector.clear();
  const TaskId id = task.id;
  const auto found = tasks_.find(id);
  undo_.emplace_back(id, found == tasks_.end() ? Tasks::node_type() : Extract(found));
  Tasks made;
  made.emplace(id, Lease{population, std::move(task)});
  Insert(made.extract(made.begin()));
}

void LeaseTable::Erase(const TaskId& id) {
  if (const auto found = tasks_.find(id); found != tasks_.end()) undo_.emplace_back(id, Extract(found));
}

void LeaseTable::EraseRound(const RoundId& round) {
  for (auto it = tasks_.lower_bound({round, 0}); it != tasks_.end() && it->first.round == round;) {
    const auto next = std::next(it);
    undo_.emplace_back(it->first, Extract(it));
    it = next;
  }
}

void LeaseTable::Rollback() {
  for (auto change = undo_.rbegin(); change != undo_.rend(); ++change) {
    if (const auto found = tasks_.find(change->first); found != tasks_.end()) Extract(found);
    if (change->second) Insert(std::move(change->second));
  }
  undo_.clear();
}

const TaskRecord* LeaseTable::Find(const TaskId& id) const {
  const auto found = tasks_.find(id);
  return found == tasks_.end() ? nullptr : &found->second.task;
}

std::vector<TaskId> LeaseTable::HeldBy(const std::string& population, const WorkerName& worker) const {
  const auto held = by_worker_.find({population, worker});
  if (held == by_worker_.end()) return {};
  return {held->second.begin(), held->second.end()};
}

std::vector<TaskId> LeaseTable::OfRound(const RoundId& round) const {
  std::vector<TaskId> leased;
  for (auto it = tasks_.lower_bound({round, 0}); it != tasks_.end() && it->first.round == round; ++it) {
    leased.push_back(it->first);
  }
  return leased;
}

std::vector<TaskId> LeaseTable::Expired(absl::Time now, int limit) const {
  std::vector<TaskId> expired;
  for (auto it = by_expiry_.begin(); it != by_expiry_.end() && it->first <= now; ++it) {
    if (static_cast<int>(expired.size()) >= limit) break;
    expired.push_back(it->second);
  }
  return expired;
}

absl::Time LeaseTable::NextExpiry(absl::Time now) const {
  // The next instant that absl::Time can tell from `now`, and an id before all others.
  const auto next = by_expiry_.lower_bound({now + absl::Nanoseconds(1) / 4, TaskId()});
  return next == by_expiry_.end() ? absl::InfiniteFuture() : next->first;
}

LeaseTable::Tasks::node_type LeaseTable::Extract(Tasks::iterator task) {
  const Lease& lease = task->second;
  const auto held = by_worker_.find({lease.population, lease.task.worker});
  held->second.erase(task->first);
  if (held->second.empty()) by_worker_.erase(held);
  by_expiry_.erase({lease.task.expire_time, task->first});
  return tasks_.extract(task);
}

void LeaseTable::Insert(Tasks::node_type node) {
  const Lease& lease = node.mapped();
  by_worker_[{lease.population, lease.task.worker}].insert(node.key());
  by_expiry_.insert({lease.task.expire_time, node.key()});
  tasks_.insert(std::move(node));
}

}  // namespace sheaf
