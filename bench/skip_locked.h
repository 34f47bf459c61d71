// The yardstick of a queue on PostgreSQL: the cycle that people write by hand, straight on libpq. Each worker has a
// connection, on which one transaction ends the tasks that it holds, and the next takes as many again, by FOR UPDATE
// SKIP LOCKED.
//
//   ASSIGN_OR_RETURN(LoopResult result, RunSkipLocked(setup, conninfo, 64, 16));
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bench/bench.h"
#include "bench/closed_loop.h"

namespace sheaf::bench {

// On an empty database, for the set-up's duration. A unit of the result is a task that was ended, with a result of 1
// KiB.
absl::StatusOr<LoopResult> RunSkipLocked(const Setup& setup, const std::string& conninfo, int workers, int batch);

}  // namespace sheaf::bench
