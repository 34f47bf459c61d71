// LeaseTable: the leased tasks of a SqlTaskStore, in memory, because every call of every worker asks for them. What it
// answers needs no index in the database, which each lease would have to keep up to date twice.
//
//   leases.Put(population, task);
//   const TaskRecord* found = leases.Find(id);   // Null: not leased. With its second lease, if it has one.
//   leases.Erase(id);
//   leases.Commit();                             // Or Rollback: takes back what was done since the last of these.
//
// What the submitter wrote (payload, data_selector) is not kept. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "storage/records.h"
#include "storage/single_leases.h"

namespace sheaf {

class LeaseTable {
 public:
  // Replaces one of the same id.
  void Put(const std::string& population, TaskRecord task);
  void Erase(const TaskId& id);
  // All of a round's, whose number does not matter: the entries go little by little, a part with each Commit.
  void EraseRound(const RoundId& round);
  void Commit();
  void Rollback();

  const TaskRecord* Find(const TaskId& id) const;
  // As TaskStore::PlaceOf.
  std::optional<TaskId> PlaceOf(const TaskId& origin) const;
  // In the order of their ids, as the worker holds them. A worker of the same name in another population is another
  // worker.
  std::vector<TaskRecord> HeldBy(const std::string& population, const WorkerName& worker) const;
  std::vector<TaskId> OfRound(const RoundId& round) const;
  // At most `limit` leases that expire at or before `now`, in the order of expire_time, then id: the task as that lease
  // has it.
  std::vector<TaskRecord> Expired(absl::Time now, int limit) const;
  // The first expire_time after `now`; InfiniteFuture if there is none.
  absl::Time NextExpiry(absl::Time now) const;

  // Of a round's tasks those that may be leased again. Kept from the first call on, which takes O(the round's leases).
  const SingleLeases& SingleLeasesOf(const RoundId& round);

 private:
  struct Lease {
    std::string population;
    TaskRecord task;
  };
  using Tasks = std::map<TaskId, Lease>;
  bool IsErased(const TaskId& id) const { return !erased_.empty() && erased_.contains(id.round); }
  // The round collects again: what it had before must not come back with it.
  void Unerase(const RoundId& round);
  // At most `limit` entries of a round that was erased. True if none is left.
  bool Sweep(const RoundId& round, int limit);
  using Holder = std::pair<std::string, WorkerName>;
  struct HolderHash {
    size_t operator()(const Holder& holder) const {
      return std::hash<std::string>()(holder.first) * 31 + std::hash<WorkerName>()(holder.second);
    }
  };
  void Unindex(const Lease& lease, const TaskId& id, const WorkerName& worker, absl::Time expire_time, bool is_second);
  Tasks::node_type Extract(Tasks::iterator task);
  void Insert(Tasks::node_type node);

  Tasks tasks_;
  std::unordered_map<Holder, std::set<TaskId>, HolderHash> by_worker_;
  // And whether it is the second lease.
  std::set<std::tuple<absl::Time, TaskId, bool>> by_expiry_;
  // Of rounds that somebody asked for.
  std::unordered_map<RoundId, SingleLeases> single_leases_;
  // Of tasks that were carried over, by their origins.
  std::map<TaskId, TaskId> places_;
  // Rounds of which there still are entries that count for nothing.
  std::set<RoundId> erased_;
  // What each change since Commit replaced; an empty node where there was nothing.
  std::vector<std::pair<TaskId, Tasks::node_type>> undo_;
  // Those of erased_ since Commit.
  std::vector<RoundId> undo_erased_;
};

}  // namespace sheaf
