// A round as a trace: JSON in Chrome's Trace Event Format, which Perfetto (https://ui.perfetto.dev) opens.
//
//   const std::string json = TraceEvents(round, tasks, session.now());
//
// What it has: the round's critical path; the server, with what it received, committed, folded and sealed, and how many
// leases were held; and a process for each worker, with a track for each attempt that it had at a time. An attempt is a
// slice from lease to end, over slices of what was done then; where there is none, nobody accounts for the time. Before
// it is its wait, and at its end an instant: how it ended. Times count from the round's creation.
//
// Pure; thread-safe. Takes time for the attempts, and for each the attempts that its worker had at once.
#pragma once

#include <span>
#include <string>

#include "absl/time/time.h"
#include "sheaf/v1/round.pb.h"
#include "sheaf/v1/task.pb.h"

namespace sheaf {

// The tasks come with their attempts (GetTask). What has not ended goes on until `now`.
std::string TraceEvents(const v1::Round& round, std::span<const v1::Task> tasks, absl::Time now);

}  // namespace sheaf
