// ExecutableConfig: what a worker's settings say about the executables that it runs.
//
//   ExecutableConfig config;
//   AddExecutableSettings(settings, environment, config);
//   ASSIGN_OR_RETURN(const std::string output, settings.Read(arguments, environment));
//   RETURN_IF_ERROR(config.Complete({.concurrency = 4, .path = path}));   // Now `executables` can be used.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "settings/settings.h"
#include "worker/runners/executable.h"

namespace sheaf {

struct ExecutableConfig {
  std::vector<Executable> executables;
  ExecutableSurroundings surroundings;
  // Where the directories of tasks are made.
  std::string scratch;

  // As they were said, until Complete.
  struct Limit {
    // Of a computation; empty: of all.
    std::string computation;
    std::string what;
    std::string value;
  };
  std::vector<Limit> limits;
  bool is_sandboxed = false;

  struct Completion {
    // Tasks of this worker at a time: those that it runs, and those that it prepares.
    int concurrency = 1;
    int prepare_ahead = 0;
    // Folders with programs, with colons between them.
    std::string_view path;
  };
  // Looks at all of it together: finds the programs and gives each its limits. INVALID_ARGUMENT, naming what was said,
  // if a program is not there, two have one name, or a limit is of none.
  absl::Status Complete(const Completion& completion);

 private:
  absl::Status Apply(const Limit& limit, Executable& executable) const;
};

// The rows. The values go to `config`, which outlives `settings`.
void AddExecutableSettings(Settings& settings, const Environment& environment, ExecutableConfig& config);

}  // namespace sheaf
