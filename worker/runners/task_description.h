// TaskDescription: what an executable is told of a task: the text of task.json.
//
//   RETURN_IF_ERROR(directory.Write("task.json", TaskDescription(lease, surroundings.data, limits)));
//
// docs/reference/runner.md says what each field is. A function of values: thread-safe.
#pragma once

#include <map>
#include <string>

#include "sheaf/v1/work_service.pb.h"
#include "worker/processes/process_limits.h"

namespace sheaf {

// A JSON object on one line.
std::string TaskDescription(const v1::Lease& lease, const std::map<std::string, std::string>& data,
                            const ProcessLimits& limits);

}  // namespace sheaf
