// What a task of two leases looks like from either of them. Whoever shows a token has one lease, and need not know
// which:
//
//   ASSIGN_OR_RETURN(TaskRecord task, store.GetTaskState(id));
//   task = AsHeldUnder(std::move(task), token);
//   const bool is_held = task.state == TaskState::kLeased && task.lease_token == token;
//
// Pure; thread-safe.
#pragma once

#include "storage/records.h"

namespace sheaf {

// If `token` is that of the task's second lease, the two have changed places; else the task as it is.
TaskRecord AsHeldUnder(TaskRecord task, const LeaseToken& token);
// The same for a task that this worker holds.
TaskRecord AsHeldBy(TaskRecord task, const WorkerName& worker);

// A LEASED task may be given a second one: it has one lease, was not carried over, and its attempt has not had a second
// one beside it. What ended that may end the next one, too, at once and again and again.
bool MayBeLeasedAgain(const TaskRecord& task);

// The task without the lease in its own fields: the second one, if there is any, is now the only one. Otherwise it is
// nobody's.
void EndFirstLease(TaskRecord& task);

}  // namespace sheaf
