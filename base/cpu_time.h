// ThreadCpuTime: how much of a processor this thread has had so far. On a machine that others use, too, it says what
// work costs where the clock says how long it waited.
#pragma once

#include "absl/time/time.h"

namespace sheaf {

absl::Duration ThreadCpuTime();

}  // namespace sheaf
