// What all demos do alike: a place of their own, a federation in it, and a way out when somebody presses Ctrl-C.
//
//   return RunDemo(session, keep, [&](InterruptGuard& guard, const std::string& directory) -> absl::Status {
//     ASSIGN_OR_RETURN(LocalFederation federation, LocalFederation::Start(session.host(), guard, {directory}));
//     return RunProgramOn(session, guard, federation, program, {.rounds = 1});
//   });
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "cli/processes/interrupt.h"
#include "cli/processes/local_federation.h"
#include "cli/session.h"
#include "cli/terminal/errors.h"
#include "sdk/cpp/program/program.h"

namespace sheaf {

// Runs `demo` in a temporary directory, which stays with `keep`. CANCELLED after an interrupt, whatever `demo`
// returned.
absl::Status RunDemo(Session& session, bool keep,
                     const std::function<absl::Status(InterruptGuard& guard, const std::string& directory)>& demo);

// This machine's package index. Errors say how to come by one.
absl::StatusOr<std::string> ReadIndexForDemo(Session& session);

// The dataset whose snapshot is at `data`. If that is empty, it is parsed from this machine's package index, once, and
// saved as `snapshot`, which `data` is then: the workers load it from there.
template <typename Dataset>
absl::StatusOr<Dataset> PrepareDataset(Session& session, const std::string& snapshot, std::string& data) {
  if (!data.empty()) return Dataset::Load(data);
  ASSIGN_OR_RETURN(const std::string index, ReadIndexForDemo(session));
  absl::StatusOr<Dataset> dataset = Dataset::ParseAvailable(index);
  if (!dataset.ok()) return WithHint(dataset.status(), "give a snapshot with --data");
  RETURN_IF_ERROR(dataset->Save(snapshot));
  data = snapshot;
  return dataset;
}

// Errors of RunProgram; ABORTED, with the end of its log, if a process of the federation ended.
absl::Status RunProgramOn(Session& session, InterruptGuard& guard, LocalFederation& federation, Program& program,
                          const ProgramOptions& options);

}  // namespace sheaf
