// ParseWorkerInvocation: what sheaf-worker was told to do, by flag, environment and file (settings/settings.h).
//
//   ASSIGN_OR_RETURN(const WorkerInvocation invocation,
//                    ParseWorkerInvocation({.computations = {NoopComputation()}}, arguments,
//                                          ProcessEnvironment()));
//   if (!invocation.output.empty()) fmt::print("{}", invocation.output);   // --help, --version or --print-config.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/log.h"
#include "sdk/cpp/client/channel_options.h"
#include "settings/settings.h"
#include "worker/computation_table.h"
#include "worker/relay/relay_config.h"
#include "worker/runners/executable_config.h"
#include "worker/worker_loop.h"

namespace sheaf {

struct WorkerConfig {
  // What its main decides: what it is called, in help, errors and the log, and what it can run.
  std::string program = "sheaf-worker";
  ComputationTable computations;

  std::string server;
  ChannelSecurity security;
  // Its name is empty if nobody chose one.
  WorkerOptions options;
  // Name and location; checked.
  std::vector<std::pair<std::string, std::string>> data;
  // Programs of other people's.
  ExecutableConfig programs;
  // The server that it passes its tasks on to, if it computes nothing itself.
  RelayConfig relay;
  // Of its computations those that it may run; empty means the programs, or all where there are none. Of a relay: of
  // those that the workers of the server below offer.
  std::vector<std::string> allow;
  int64_t cache_bytes = 0;
  LogLevel log_level = LogLevel::kInfo;
};

struct WorkerInvocation {
  WorkerConfig config;
  // If not empty, print this and end well.
  std::string output;
};

// Every knob, one row each; for the program and the computations in `invocation`. The values go to
// `invocation`, which must outlive it. They are not checked together.
Settings SettingsOf(WorkerInvocation& invocation, const Environment& environment);

// `config` has what the main decides; `arguments` are without the program's name. INVALID_ARGUMENT, naming the
// setting and where it came from, if anything is unknown or makes no sense.
absl::StatusOr<WorkerInvocation> ParseWorkerInvocation(WorkerConfig config, const std::vector<std::string>& arguments,
                                                       const Environment& environment);

}  // namespace sheaf
