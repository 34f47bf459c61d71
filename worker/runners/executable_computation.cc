#include "worker/runners/executable_computation.h"

#include "base/status_macros.h"
#include "worker/runners/executable_task.h"

namespace sheaf {

absl::StatusOr<std::unique_ptr<PreparedTask>> ExecutableComputation::Prepare(const v1::Lease& lease,
                                                                             RunControl& control) const {
  auto task = std::make_unique<ExecutableTask>(lease, ExecutableTask::Parts{.executable = executable_,
                                                                            .surroundings = parts_.surroundings,
                                                                            .host = parts_.host,
                                                                            .broadcasts = parts_.broadcasts,
                                                                            .use = use_,
                                                                            .clock = parts_.clock});
  RETURN_IF_ERROR(task->Begin(control));
  return task;
}

}  // namespace sheaf
