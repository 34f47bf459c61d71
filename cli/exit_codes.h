// What the process tells a shell: one table, from the status a command ended with.
//
//   const ExitCode code = ToExitCode(status.code());
//
// `sheaf help exit-codes` prints the table.
#pragma once

#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,
  kUsage = 2,
  kNotFound = 3,
  kDenied = 4,
  kUnreachable = 5,
  kTimedOut = 6,
  kPrecondition = 7,
  // As a shell reports a process that Ctrl-C ended.
  kInterrupted = 130,
};

struct ExitCodeRow {
  ExitCode code;
  std::string_view meaning;
};

// In ascending order.
std::span<const ExitCodeRow> ExitCodeTable();

// Every code that has no row of its own is kFailed.
ExitCode ToExitCode(absl::StatusCode code);

}  // namespace sheaf
