// LeaseTable: the leased tasks of a SqlTaskStore, in memory, because every call of every worker asks for them. What it
// answers needs no index in the database, which each lease would have to keep up to date twice.
//
//   leases.Put(task);
//   const TaskRecord* task = leases.Find(id);   // Null: not leased.
//   leases.Erase(id);
//   leases.Commit();                            // Or Rollback: takes back what was done since the last of these.
//
// What the submitter wrote (payload, data_selector) is not kept. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "storage/records.h"

namespace sheaf {

class LeaseTable {
 public:
  // Replaces one of the same id.
  void Put(TaskRecord task);
  void Erase(const TaskId& id);
  void EraseRound(const RoundId& round);
  void Commit() { undo_.clear(); }
  void Rollback();

  const TaskRecord* Find(const TaskId& id) const;
  // In the order of their ids.
  std::vector<TaskId> HeldBy(const WorkerName& worker) const;
  std::vector<TaskId> OfRound(const RoundId& round) const;
  // At most `limit` that expire at or before `now`, in the order of expire_time, then id.
  std::vector<TaskId> Expired(absl::Time now, int limit) const;
  // The first expire_time after `now`; InfiniteFuture if there is none.
  absl::Time NextExpiry(absl::Time now) const;

 private:
  using Tasks = std::map<TaskId, TaskRecord>;
  Tasks::node_type Extract(Tasks::iterator task);
  void Insert(Tasks::node_type node);

  Tasks tasks_;
  std::unordered_map<WorkerName, std::set<TaskId>> by_worker_;
  std::set<std::pair<absl::Time, TaskId>> by_expiry_;
  // What each change since Commit replaced; an empty node where there was nothing.
  std::vector<std::pair<TaskId, Tasks::node_type>> undo_;
};

}  // namespace sheaf
