// Executable: a program that computes tasks, as the worker's own command line names it. docs/reference/runner.md says
// what it finds and what it returns.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "worker/processes/process_limits.h"

namespace sheaf {

struct Executable {
  // Of the computation.
  std::string name;
  int version = 1;
  // The path of the program, then its arguments.
  std::vector<std::string> arguments;
  // It stays, and is told of its tasks; else a process is started for each.
  bool stays = false;
  ProcessLimits limits;
  // Tasks at a time.
  int processes_max = 1;
  // Of these, tasks of announced rounds that are prepared, so that there always is one for a task that runs.
  int processes_ahead_max = 0;
};

// What all executables of a worker find.
struct ExecutableSurroundings {
  // Name and path.
  std::map<std::string, std::string> data;
  // NAME=VALUE, of each variable that is given to them.
  std::vector<std::string> environment;
  // The path of bubblewrap; empty: they run as they are.
  std::string bwrap;
  // What they may read in the sandbox besides data and their own folder.
  std::vector<std::string> readable;
  // The server hears the messages of their errors, which may quote data.
  bool shares_errors = false;
};

}  // namespace sheaf
