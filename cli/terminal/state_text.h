// States as people read and type them: "succeeded" and not TASK_SUCCEEDED.
#pragma once

#include <string>
#include <vector>

#include "cli/terminal/table.h"
#include "sheaf/v1/round.pb.h"
#include "sheaf/v1/task.pb.h"

namespace sheaf {

// Coloured cells: green is done, yellow moves, red wants a look.
Cell StateCell(v1::RoundState state);
Cell StateCell(v1::TaskState state);
Cell OutcomeCell(v1::AttemptOutcome outcome);

// The names that --state takes.
std::vector<std::string> RoundStateNames();
std::vector<std::string> TaskStateNames();

// The state of that name; UNSPECIFIED for any other.
v1::RoundState ParseRoundState(const std::string& name);
v1::TaskState ParseTaskState(const std::string& name);

}  // namespace sheaf
