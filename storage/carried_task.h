// A task by the name that a worker was given, wherever it was carried over to since.
//
//   const TaskId name{RoundId("r-7k2m9q4x"), 17};
//   ASSIGN_OR_RETURN(const TaskRecord task, FindByName(store, name));   // task.id says where it is.
#pragma once

#include "absl/status/statusor.h"
#include "storage/records.h"
#include "storage/task_store.h"

namespace sheaf {

// The state of what it is by now: itself, or what it became each time that it was carried over. NOT_FOUND if there is
// none; a round that was deleted forgets what became of its tasks, but of those that are LEASED. O(1) for what is
// LEASED or was never carried over, else O(times that it was).
absl::StatusOr<TaskRecord> FindByName(TaskStore& store, const TaskId& name);

}  // namespace sheaf
