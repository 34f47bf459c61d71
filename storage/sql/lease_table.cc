#include "storage/sql/lease_table.h"

#include <utility>

namespace sheaf {

void LeaseTable::Put(int64_t key, TaskRecord task) {
  Erase(key);
  task.payload.clear();
  task.data_selector.clear();
  ++num_held_[task.worker];
  tasks_.emplace(key, std::move(task));
}

void LeaseTable::Erase(int64_t key) {
  if (const auto found = tasks_.find(key); found != tasks_.end()) Erase(found);
}

void LeaseTable::EraseRange(int64_t first, int64_t last) {
  for (auto it = tasks_.lower_bound(first); it != tasks_.end() && it->first <= last;) it = Erase(it);
}

void LeaseTable::Clear() {
  tasks_.clear();
  num_held_.clear();
}

const TaskRecord* LeaseTable::Find(int64_t key) const {
  const auto found = tasks_.find(key);
  return found == tasks_.end() ? nullptr : &found->second;
}

int64_t LeaseTable::CountOf(const WorkerName& worker) const {
  const auto found = num_held_.find(worker);
  return found == num_held_.end() ? 0 : found->second;
}

LeaseTable::Tasks::iterator LeaseTable::Erase(Tasks::iterator task) {
  const auto holder = num_held_.find(task->second.worker);
  if (--holder->second == 0) num_held_.erase(holder);
  return tasks_.erase(task);
}

}  // namespace sheaf
