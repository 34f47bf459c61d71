// ExecutableComputation: a computation that a program of somebody else's computes: a process for each task, or
// processes that stay.
//
//   ExecutableComputation words({.name = "count_words", .arguments = {"/srv/count_words.sh"}},
//                               {.host = *host, .broadcasts = files, .surroundings = surroundings, .clock = clock});
//
// docs/reference/runner.md is the contract; executable_task.h is what happens to one task. Thread-safe.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "sdk/cpp/computation/computation.h"
#include "worker/processes/process_host.h"
#include "worker/runners/broadcast_files.h"
#include "worker/runners/executable.h"
#include "worker/runners/executable_use.h"

namespace sheaf {

class ExecutableComputation final : public Computation {
 public:
  // All outlive it.
  struct Parts {
    ProcessHost& host;
    BroadcastFiles& broadcasts;
    const ExecutableSurroundings& surroundings;
    const Clock& clock;
  };
  ExecutableComputation(Executable executable, const Parts& parts)
      : executable_(std::move(executable)),
        parts_(parts),
        use_({.tasks_max = executable_.processes_max, .ahead_max = executable_.processes_ahead_max}, parts.clock) {}

  std::string_view name() const override { return executable_.name; }
  int version() const override { return executable_.version; }
  // False while all its processes are busy, and for a while after it declined a task.
  bool is_offered() const override { return use_.is_free(); }
  absl::Duration offer_pause() const override { return use_.pause_left(); }
  absl::StatusOr<std::unique_ptr<PreparedTask>> Prepare(const v1::Lease& lease, RunControl& control) const override;

 private:
  const Executable executable_;
  const Parts parts_;
  mutable ExecutableUse use_;
};

}  // namespace sheaf
