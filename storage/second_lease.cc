#include "storage/second_lease.h"

#include <utility>

namespace sheaf {
namespace {

void SwapLeases(TaskRecord& task) {
  SecondLease& other = *task.second_lease;
  std::swap(task.worker, other.worker);
  std::swap(task.lease_token, other.lease_token);
  std::swap(task.poll_id, other.poll_id);
  std::swap(task.lease_time, other.lease_time);
  std::swap(task.expire_time, other.expire_time);
  std::swap(task.attempt_deadline_time, other.attempt_deadline_time);
  std::swap(task.progress, other.progress);
  std::swap(task.attempt, other.attempt);
}

}  // namespace

TaskRecord AsHeldUnder(TaskRecord task, const LeaseToken& token) {
  if (task.second_lease && task.second_lease->lease_token == token) SwapLeases(task);
  return task;
}

TaskRecord AsHeldBy(TaskRecord task, const WorkerName& worker) {
  if (task.second_lease && task.second_lease->worker == worker) SwapLeases(task);
  return task;
}

bool MayBeLeasedAgain(const TaskRecord& task) {
  return !task.second_lease && !task.origin && task.attempt == task.num_attempts;
}

void EndFirstLease(TaskRecord& task) {
  if (!task.second_lease) task.second_lease.emplace();
  SwapLeases(task);
  task.second_lease.reset();
}

}  // namespace sheaf
