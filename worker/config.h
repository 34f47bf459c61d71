// ParseWorkerInvocation: what sheaf-worker was told to do. A setting (settings.h) is taken from the first of these that
// names it: the flag (--log-level), the environment (SHEAF_LOG_LEVEL), the file of --config or SHEAF_CONFIG (log_level
// = "..." in TOML; lists as arrays), the default. An empty variable is one that is not set.
//
//   ASSIGN_OR_RETURN(WorkerInvocation invocation, ParseWorkerInvocation({"--concurrency", "2"}, environment));
//   if (!invocation.output.empty()) ...                 // --help or --version: print it and end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/settings.h"

namespace sheaf {

struct WorkerInvocation {
  WorkerConfig config;
  // If not empty, print this and end well.
  std::string output;
};

// `arguments` without the program's name; `environment` gives the value of a variable, if it is set. INVALID_ARGUMENT,
// naming the setting and where it came from, if anything is unknown or makes no sense.
absl::StatusOr<WorkerInvocation> ParseWorkerInvocation(
    const std::vector<std::string>& arguments,
    const std::function<std::optional<std::string>(const std::string& variable)>& environment);

}  // namespace sheaf
