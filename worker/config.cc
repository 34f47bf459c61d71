#include "worker/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "base/status_macros.h"
#include "sdk/cpp/client/server_address.h"

namespace sheaf {
namespace {

// As work_service.proto allows.
constexpr int64_t kConcurrencyMax = 256;
constexpr size_t kNameBytesMax = 128;

constexpr int64_t kMegabytesMax = int64_t{1} << 30;

absl::Status CheckServer(const std::string& text) { return ParseServerAddress(text).status(); }

absl::Status CheckName(const std::string& text) {
  const auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
  if (text.size() <= kNameBytesMax && std::all_of(text.begin(), text.end(), is_allowed)) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "\"{}\" is not a worker's name: 1 to {} of letters, digits, \"_\", \".\" and \"-\"", text, kNameBytesMax));
}

// "NAME=VALUE", cut in two.
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not of the form NAME=VALUE", text));
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

// Stores a text that `check` lets pass.
SetValue Checked(absl::Status (*check)(const std::string& text), std::string* value) {
  return [check, value](const std::string& text) {
    RETURN_IF_ERROR(check(text));
    *value = text;
    return absl::OkStatus();
  };
}

std::string DataHelp(const ComputationTable& computations) {
  std::string examples;
  for (const AnyDataSource& source : computations.data_sources()) {
    examples += fmt::format("{}{}={}", examples.empty() ? ", for example " : ", ", source.name, source.example);
  }
  return fmt::format("Local data as NAME=LOCATION{}.", examples);
}

}  // namespace

// Values that say nothing wrong, each by itself.
absl::Status CheckTogether(const Environment& environment, WorkerConfig& config) {
  const std::string path = environment("PATH").value_or("");
  RETURN_IF_ERROR(config.programs.Complete(
      {.concurrency = config.options.concurrency, .prepare_ahead = config.options.prepare_ahead, .path = path}));
  const std::vector<Executable>& executables = config.programs.executables;
  if (config.relay.is_wanted()) {
    config.relay.security.is_insecure = config.security.is_insecure;
    // A relay has nothing to prepare.
    config.options.prepare_ahead = 0;
    if (executables.empty() && config.data.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--relay passes tasks on and computes nothing: leave out --run, --serve and --data");
  }
  for (const std::string& name : config.allow) {
    const auto is_named = [&name](const Executable& executable) { return executable.name == name; };
    if (std::any_of(executables.begin(), executables.end(), is_named)) continue;
    RETURN_IF_ERROR(config.computations.CheckName(name));
  }
  // Programs get what is there; computations of ours know what they take.
  for (const auto& [name, location] : config.data) {
    if (std::filesystem::exists(location)) {
      config.programs.surroundings.data.emplace(name, std::filesystem::absolute(location));
    }
  }
  const DataSources known(config.computations.data_sources());
  std::erase_if(config.data, [&known](const auto& pair) { return !known.Has(pair.first); });
  return absl::OkStatus();
}

Settings SettingsOf(WorkerInvocation& invocation, const Environment& environment) {
  WorkerConfig& config = invocation.config;
  WorkerOptions& options = config.options;
  ChannelSecurity& security = config.security;
  Settings settings(config.program, "pulls tasks from a Sheaf server and computes them on this machine's data.");
  settings.Custom("server", "127.0.0.1:7433",
                  "Address of the server: HOST:PORT for gRPC, or a URL, http:// or https://, for HTTP/1.1.",
                  Checked(CheckServer, &config.server));
  settings.Text(
      "tls_ca", "",
      "PEM file with the authorities of the server's certificate, or system; turns TLS on for gRPC, and of https:// "
      "replaces those of the system.",
      &security.tls_ca);
  settings.Text("tls_cert", "", "PEM file with this worker's own certificate, for a server that asks for one.",
                &security.tls_cert);
  settings.Text("tls_key", "", "PEM file with the key of --tls-cert.", &security.tls_key);
  settings.Text("token_file", "", "File with the token that this worker shows; read again when it changes.",
                &security.token_file);
  settings.Switch("insecure", "Send the token to another machine although nothing is encrypted.",
                  &security.is_insecure);
  settings.Custom("name", "",
                  "Name of this worker, unique among those that run; by default the host's with random letters.",
                  Checked(CheckName, &options.worker));
  settings.Text("population", "default", "Population whose tasks it takes.", &options.population);
  settings.Number("concurrency", "1", "Tasks at a time.", {.max = kConcurrencyMax}, &options.concurrency);
  settings.Number("prepare_ahead", "1",
                  "Tasks of announced rounds to hold beside those, and to prepare before their rounds open.",
                  {.min = 0, .max = kConcurrencyMax}, &options.prepare_ahead);
  AddExecutableSettings(settings, environment, config.programs);
  settings.List("data", DataHelp(config.computations), [&config](const std::string& text) -> absl::Status {
    ASSIGN_OR_RETURN(auto pair, ParsePair(text));
    // Checked here, so that the sentence names the setting.
    DataSources sources(config.computations.data_sources());
    if (sources.Has(pair.first) || config.programs.executables.empty()) {
      RETURN_IF_ERROR(sources.Configure(pair.first, pair.second));
    } else if (!std::filesystem::exists(pair.second)) {
      return absl::InvalidArgumentError(fmt::format("there is no {} for the data \"{}\"", pair.second, pair.first));
    }
    config.data.push_back(std::move(pair));
    return absl::OkStatus();
  });
  settings.List("label", "A label as KEY=VALUE, matched against the tasks' requirements.",
                [&options](const std::string& text) -> absl::Status {
                  ASSIGN_OR_RETURN(const auto pair, ParsePair(text));
                  options.labels[pair.first] = pair.second;
                  return absl::OkStatus();
                });
  settings.List("allow",
                "Run only this computation; by default those of --run and --serve, or else all built-in ones whose "
                "data is there.",
                [&config](const std::string& text) {
                  config.allow.push_back(text);
                  return absl::OkStatus();
                });
  AddRelaySettings(settings, config.relay);
  settings.Duration("grace", "20s", "When told to stop: how long running tasks may go on before they are given back.",
                    {.may_be_zero = true, .may_be_infinite = true}, &options.grace);
  settings.Switch("exit_when_drained", "End when an operator drains this worker, instead of waiting to be taken back.",
                  &options.exit_when_drained);
  settings.Megabytes("cache_megabytes", "1024", "Memory for broadcasts that several tasks need.",
                     {.min = 0, .max = kMegabytesMax}, &config.cache_bytes);
  settings.Megabytes("broadcast_megabytes", "4096", "Most that it downloads for one task.", {.max = kMegabytesMax},
                     &options.broadcast_bytes_max);
  settings.Megabytes("contribution_megabytes", "1024",
                     "Most that it returns from one task, whatever the server asks for.", {.max = kMegabytesMax},
                     &options.contribution_bytes_max);
  settings.Level("log_level", "info", "debug, info, warning, error or off.", &config.log_level);
  return settings;
}

absl::StatusOr<WorkerInvocation> ParseWorkerInvocation(WorkerConfig config, const std::vector<std::string>& arguments,
                                                       const Environment& environment) {
  WorkerInvocation invocation{.config = std::move(config), .output = {}};
  ASSIGN_OR_RETURN(invocation.output, SettingsOf(invocation, environment).Read(arguments, environment, [&] {
    return CheckTogether(environment, invocation.config);
  }));
  return invocation;
}

}  // namespace sheaf
