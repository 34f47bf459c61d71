#include "storage/carried_task.h"

#include "base/status_macros.h"

namespace sheaf {

absl::StatusOr<TaskRecord> FindByName(TaskStore& store, const TaskId& name) {
  TaskId place = store.PlaceOf(name).value_or(name);
  while (true) {
    ASSIGN_OR_RETURN(TaskRecord task, store.GetTaskState(place));
    if (!task.carried_to) return task;
    place = *task.carried_to;
  }
}

}  // namespace sheaf
