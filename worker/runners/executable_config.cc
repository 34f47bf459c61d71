#include "worker/runners/executable_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/status_macros.h"
#include "settings/values.h"
#include "worker/processes/command_words.h"

namespace sheaf {
namespace {

constexpr int kVersionMax = 1'000'000'000;
constexpr int kProcessesMax = 256;
constexpr int64_t kOutputBytes = int64_t{1} << 30;

// "NAME[@VERSION]=COMMAND".
absl::StatusOr<Executable> ParseExecutable(const std::string& text, bool stays) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const size_t at = name.find('@');
  Executable executable{.name = name.substr(0, at), .arguments = {}, .stays = stays};
  if (equals == std::string::npos || executable.name.empty()) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not of the form COMPUTATION=COMMAND", text));
  }
  if (at != std::string::npos) {
    ASSIGN_OR_RETURN(const int64_t version, ParseNumber(name.substr(at + 1), {.max = kVersionMax}));
    executable.version = static_cast<int>(version);
  }
  ASSIGN_OR_RETURN(executable.arguments, CommandWords(text.substr(equals + 1)));
  executable.limits.output_bytes = kOutputBytes;
  return executable;
}

// "[COMPUTATION.]WHAT=VALUE". A computation's name may have dots in it, a limit's none.
absl::StatusOr<ExecutableConfig::Limit> ParseLimit(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not of the form LIMIT=VALUE", text));
  }
  const std::string name = text.substr(0, equals);
  const size_t dot = name.rfind('.');
  if (dot == 0) return absl::InvalidArgumentError(fmt::format("\"{}\" names no computation before its dot", text));
  ExecutableConfig::Limit limit{.computation = dot == std::string::npos ? "" : name.substr(0, dot),
                                .what = dot == std::string::npos ? name : name.substr(dot + 1),
                                .value = text.substr(equals + 1)};
  const auto known = {"cpu", "memory", "output", "processes", "time"};
  if (std::find(known.begin(), known.end(), limit.what) == known.end()) {
    return absl::InvalidArgumentError(
        fmt::format("there is no limit \"{}\"; there are cpu, memory, output, processes and time", limit.what));
  }
  // Read once more when it is known whose it is: here the sentence names the setting.
  if (limit.what == "processes") RETURN_IF_ERROR(ParseNumber(limit.value, {.max = kProcessesMax}).status());
  if (limit.what == "cpu" || limit.what == "time") RETURN_IF_ERROR(ParseDuration(limit.value, {}).status());
  if (limit.what == "memory" || limit.what == "output") RETURN_IF_ERROR(ParseBytes(limit.value).status());
  return limit;
}

// "NAME=VALUE"; a name alone takes over what it is here.
absl::StatusOr<std::string> ParseVariable(const std::string& text, const Environment& environment) {
  const size_t equals = text.find('=');
  if (equals == 0 || text.empty()) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not of the form NAME or NAME=VALUE", text));
  }
  if (equals != std::string::npos) return text;
  const std::optional<std::string> value = environment(text);
  if (!value.has_value()) return absl::InvalidArgumentError(fmt::format("the variable {} is not set here", text));
  return fmt::format("{}={}", text, *value);
}

}  // namespace

void AddExecutableSettings(Settings& settings, const Environment& environment, ExecutableConfig& config) {
  const auto add = [&config](bool stays) {
    return [&config, stays](const std::string& text) -> absl::Status {
      ASSIGN_OR_RETURN(Executable executable, ParseExecutable(text, stays));
      config.executables.push_back(std::move(executable));
      return absl::OkStatus();
    };
  };
  settings.List("run", "An executable for a computation, as NAME=COMMAND: it is started for each task.", add(false));
  settings.List("serve", "An executable for a computation, as NAME=COMMAND: it stays, and is told of each task.",
                add(true));
  settings.List("limit",
                "Of each executable, or as NAME.LIMIT of one: cpu=10m, time=1h, memory=2GiB, output=1GiB, processes=2.",
                [&config](const std::string& text) -> absl::Status {
                  ASSIGN_OR_RETURN(ExecutableConfig::Limit limit, ParseLimit(text));
                  config.limits.push_back(std::move(limit));
                  return absl::OkStatus();
                });
  settings.List("env", "A variable that executables get, as NAME or NAME=VALUE.",
                [&config, environment](const std::string& text) -> absl::Status {
                  ASSIGN_OR_RETURN(std::string variable, ParseVariable(text, environment));
                  config.surroundings.environment.push_back(std::move(variable));
                  return absl::OkStatus();
                });
  settings.Switch("sandbox", "Run executables under bubblewrap: no network, and no files but the data.",
                  &config.is_sandboxed);
  settings.List("readable", "A path that executables may read in the sandbox besides their data and their own folder.",
                [&config](const std::string& text) -> absl::Status {
                  if (!std::filesystem::exists(text)) {
                    return absl::InvalidArgumentError(fmt::format("there is no {}", text));
                  }
                  config.surroundings.readable.push_back(std::filesystem::absolute(text));
                  return absl::OkStatus();
                });
  settings.Switch("share_errors", "Tell the server the messages of executables' errors, which may quote data.",
                  &config.surroundings.shares_errors);
  settings.Text("scratch", "/tmp", "Folder in which the directories of executables' tasks are made.", &config.scratch);
}

absl::Status ExecutableConfig::Apply(const Limit& limit, Executable& executable) const {
  if (limit.what == "processes") {
    ASSIGN_OR_RETURN(const int64_t processes, ParseNumber(limit.value, {.max = kProcessesMax}));
    executable.processes_max = static_cast<int>(processes);
  } else if (limit.what == "memory") {
    ASSIGN_OR_RETURN(executable.limits.memory_bytes, ParseBytes(limit.value));
  } else if (limit.what == "output") {
    ASSIGN_OR_RETURN(executable.limits.output_bytes, ParseBytes(limit.value));
  } else {
    ASSIGN_OR_RETURN((limit.what == "cpu" ? executable.limits.cpu : executable.limits.time),
                     ParseDuration(limit.value, {}));
  }
  return absl::OkStatus();
}

absl::Status ExecutableConfig::Complete(const Completion& completion) {
  for (auto at = executables.begin(); at != executables.end(); ++at) {
    const auto is_same = [&](const Executable& other) { return other.name == at->name; };
    if (std::any_of(executables.begin(), at, is_same)) {
      return absl::InvalidArgumentError(
          fmt::format("two executables are named for the computation \"{}\": keep one of --run and --serve", at->name));
    }
    absl::StatusOr<std::string> program = FindExecutable(at->arguments.front(), completion.path);
    if (!program.ok()) {
      return absl::InvalidArgumentError(fmt::format("the executable of the computation \"{}\": {}", at->name,
                                                    std::string(program.status().message())));
    }
    at->arguments.front() = *std::move(program);
    at->processes_max = completion.concurrency + completion.prepare_ahead;
  }
  // The one for all first: the one for a computation goes before it.
  std::stable_partition(limits.begin(), limits.end(), [](const Limit& limit) { return limit.computation.empty(); });
  for (const Limit& limit : limits) {
    bool is_used = limit.computation.empty();
    for (Executable& executable : executables) {
      if (!limit.computation.empty() && limit.computation != executable.name) continue;
      RETURN_IF_ERROR(Apply(limit, executable));
      is_used = true;
    }
    if (!is_used) {
      return absl::InvalidArgumentError(fmt::format(
          "the limit \"{}.{}\" is of no executable: name one with --run or --serve", limit.computation, limit.what));
    }
  }
  // Else tasks whose rounds wait for those before would take the processes of these.
  for (Executable& executable : executables) {
    executable.processes_ahead_max = std::max(executable.processes_max - completion.concurrency, 0);
  }
  if (is_sandboxed && !executables.empty()) {
    absl::StatusOr<std::string> bwrap = FindExecutable("bwrap", completion.path);
    if (!bwrap.ok()) {
      return absl::InvalidArgumentError(fmt::format(
          "--sandbox needs bubblewrap: {}; install it, or leave --sandbox out", std::string(bwrap.status().message())));
    }
    surroundings.bwrap = *std::move(bwrap);
  }
  return absl::OkStatus();
}

}  // namespace sheaf
