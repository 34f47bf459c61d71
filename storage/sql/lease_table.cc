#include "storage/sql/lease_table.h"

#include <algorithm>
#include <limits>

#include "storage/second_lease.h"

namespace sheaf {
namespace {

// Some two milliseconds.
constexpr int kSweptPerCommit = 4096;

}  // namespace

void LeaseTable::Put(const std::string& population, TaskRecord task) {
  if (IsErased(task.id)) Unerase(task.id.round);
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
  if (IsErased(id)) return;
  if (const auto found = tasks_.find(id); found != tasks_.end()) undo_.emplace_back(id, Extract(found));
}

void LeaseTable::EraseRound(const RoundId& round) {
  // The entries stay in all three indexes and count for nothing (IsErased) until Sweep has taken the last of them.
  if (erased_.insert(round).second) undo_erased_.push_back(round);
  single_leases_.erase(round);
}

void LeaseTable::Unerase(const RoundId& round) {
  erased_.erase(round);
  if (std::find(undo_erased_.begin(), undo_erased_.end(), round) == undo_erased_.end()) {
    Sweep(round, std::numeric_limits<int>::max());
    return;
  }
  for (const TaskId& id : OfRound(round)) Erase(id);
}

bool LeaseTable::Sweep(const RoundId& round, int limit) {
  auto it = tasks_.lower_bound({round, 0});
  for (; it != tasks_.end() && it->first.round == round && limit > 0; --limit) Extract(it++);
  return it == tasks_.end() || it->first.round != round;
}

void LeaseTable::Commit() {
  undo_.clear();
  undo_erased_.clear();
  if (!erased_.empty() && Sweep(*erased_.begin(), kSweptPerCommit)) erased_.erase(erased_.begin());
}

void LeaseTable::Rollback() {
  // Newest first: a task that changed twice is at the end what it was at the beginning.
  for (auto change = undo_.rbegin(); change != undo_.rend(); ++change) {
    if (const auto found = tasks_.find(change->first); found != tasks_.end()) Extract(found);
    if (change->second) Insert(std::move(change->second));
  }
  undo_.clear();
  for (const RoundId& round : undo_erased_) erased_.erase(round);
  undo_erased_.clear();
}

const TaskRecord* LeaseTable::Find(const TaskId& id) const {
  const auto found = tasks_.find(id);
  return found == tasks_.end() || IsErased(id) ? nullptr : &found->second.task;
}

std::optional<TaskId> LeaseTable::PlaceOf(const TaskId& origin) const {
  const auto place = places_.find(origin);
  if (place == places_.end() || IsErased(place->second)) return std::nullopt;
  return place->second;
}

std::vector<TaskRecord> LeaseTable::HeldBy(const std::string& population, const WorkerName& worker) const {
  const auto held = by_worker_.find({population, worker});
  if (held == by_worker_.end()) return {};
  std::vector<TaskRecord> tasks;
  for (const TaskId& id : held->second) {
    if (!IsErased(id)) tasks.push_back(AsHeldBy(tasks_.at(id).task, worker));
  }
  return tasks;
}

std::vector<TaskId> LeaseTable::OfRound(const RoundId& round) const {
  std::vector<TaskId> leased;
  if (erased_.contains(round)) return leased;
  for (auto it = tasks_.lower_bound({round, 0}); it != tasks_.end() && it->first.round == round; ++it) {
    leased.push_back(it->first);
  }
  return leased;
}

std::vector<TaskRecord> LeaseTable::Expired(absl::Time now, int limit) const {
  std::vector<TaskRecord> expired;
  for (const auto& [expire_time, id, is_second] : by_expiry_) {
    if (expire_time > now || static_cast<int>(expired.size()) >= limit) break;
    if (IsErased(id)) continue;
    const TaskRecord& task = tasks_.at(id).task;
    expired.push_back(is_second ? AsHeldUnder(task, task.second_lease->lease_token) : task);
  }
  return expired;
}

absl::Time LeaseTable::NextExpiry(absl::Time now) const {
  // The next instant that absl::Time can tell from `now`, and an id before all others.
  auto next = by_expiry_.lower_bound({now + absl::Nanoseconds(1) / 4, TaskId(), false});
  while (next != by_expiry_.end() && IsErased(std::get<TaskId>(*next))) ++next;
  return next == by_expiry_.end() ? absl::InfiniteFuture() : std::get<absl::Time>(*next);
}

const SingleLeases& LeaseTable::SingleLeasesOf(const RoundId& round) {
  const auto [leases, is_new] = single_leases_.try_emplace(round);
  if (!is_new) return leases->second;
  for (const TaskId& id : OfRound(round)) {
    const TaskRecord& task = tasks_.at(id).task;
    if (MayBeLeasedAgain(task)) leases->second.Insert(task.requirement, task.lease_time, id.index);
  }
  return leases->second;
}

void LeaseTable::Unindex(const Lease& lease, const TaskId& id, const WorkerName& worker, absl::Time expire_time,
                         bool is_second) {
  const auto held = by_worker_.find({lease.population, worker});
  held->second.erase(id);
  if (held->second.empty()) by_worker_.erase(held);
  by_expiry_.erase({expire_time, id, is_second});
}

LeaseTable::Tasks::node_type LeaseTable::Extract(Tasks::iterator task) {
  const TaskId& id = task->first;
  const Lease& lease = task->second;
  Unindex(lease, id, lease.task.worker, lease.task.expire_time, false);
  if (lease.task.origin) {
    // Its next place may be there already.
    const auto place = places_.find(*lease.task.origin);
    if (place != places_.end() && place->second == id) places_.erase(place);
  }
  if (const auto& second = lease.task.second_lease) {
    Unindex(lease, id, second->worker, second->expire_time, true);
  } else if (!single_leases_.empty()) {
    const auto single = single_leases_.find(id.round);
    if (single != single_leases_.end()) {
      single->second.Erase(lease.task.requirement, lease.task.lease_time, id.index);
    }
  }
  return tasks_.extract(task);
}

void LeaseTable::Insert(Tasks::node_type node) {
  const TaskId& id = node.key();
  const Lease& lease = node.mapped();
  by_worker_[{lease.population, lease.task.worker}].insert(id);
  by_expiry_.emplace(lease.task.expire_time, id, false);
  if (lease.task.origin) places_[*lease.task.origin] = id;
  if (const auto& second = lease.task.second_lease) {
    by_worker_[{lease.population, second->worker}].insert(id);
    by_expiry_.emplace(second->expire_time, id, true);
  } else if (MayBeLeasedAgain(lease.task) && !single_leases_.empty()) {
    const auto single = single_leases_.find(id.round);
    if (single != single_leases_.end()) {
      single->second.Insert(lease.task.requirement, lease.task.lease_time, id.index);
    }
  }
  tasks_.insert(std::move(node));
}

}  // namespace sheaf
