// LeaseTable: the leased tasks of a SqlTaskStore, in memory, because every call of every worker asks for them.
//
//   leases.Put(key, task);
//   const TaskRecord* task = leases.Find(key);   // Null: not leased.
//   leases.Erase(key);
//
// `key` is the task's in the database. What the submitter wrote (payload, data_selector) is not kept. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "storage/records.h"

namespace sheaf {

class LeaseTable {
 public:
  void Put(int64_t key, TaskRecord task);
  void Erase(int64_t key);
  // With first <= key <= last: the tasks of one round.
  void EraseRange(int64_t first, int64_t last);
  void Clear();

  const TaskRecord* Find(int64_t key) const;
  int64_t CountOf(const WorkerName& worker) const;

 private:
  using Tasks = std::map<int64_t, TaskRecord>;
  Tasks::iterator Erase(Tasks::iterator task);

  Tasks tasks_;
  // Workers that hold at least one.
  std::unordered_map<WorkerName, int64_t> num_held_;
};

}  // namespace sheaf
