// ProcessSpec: a program to start, and what it finds.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/processes/process_limits.h"

namespace sheaf {

struct ProcessSpec {
  // The path of the program, then its arguments.
  std::vector<std::string> arguments;
  // All that it gets, each as NAME=VALUE.
  std::vector<std::string> environment;
  // Where it may write. It goes when the process does. The process starts where we are.
  std::string directory;
  ProcessLimits limits;
  // The limits count from the start; else from when somebody says so (Process::Watch).
  bool is_watched_at_once = false;
};

// To tell it another process of ours.
std::string WriteProcessSpec(const ProcessSpec& spec);
ProcessSpec ReadProcessSpec(std::string_view bytes);

}  // namespace sheaf
