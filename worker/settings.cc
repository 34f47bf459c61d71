#include "worker/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "base/status_macros.h"
#include "worker/computations.h"

namespace sheaf {
namespace {

// As work_service.proto allows.
constexpr int64_t kConcurrencyMax = 256;
constexpr size_t kNameBytesMax = 128;

absl::Status ApplyServer(const std::string& text, WorkerConfig& config) {
  bool is_unix = text.starts_with("unix:");
  if (!is_unix && (text.find(':') == std::string::npos || text.front() == ':' || text.back() == ':')) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not HOST:PORT, for example 127.0.0.1:7433", text));
  }
  config.server = text;
  return absl::OkStatus();
}

absl::Status ApplyName(const std::string& text, WorkerConfig& config) {
  auto is_allowed = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.' || c == '-'; };
  if (text.size() > kNameBytesMax || !std::all_of(text.begin(), text.end(), is_allowed)) {
    return absl::InvalidArgumentError(fmt::format(
        "\"{}\" is not a worker's name: 1 to {} of letters, digits, \"_\", \".\" and \"-\"", text, kNameBytesMax));
  }
  config.options.worker = text;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ParseNumber(const std::string& text, int64_t low, int64_t high) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < low || number > high) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a whole number from {} to {}", text, low, high));
  }
  return number;
}

// "NAME=VALUE", cut in two.
absl::StatusOr<std::pair<std::string, std::string>> ParsePair(const std::string& text) {
  size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not of the form NAME=VALUE", text));
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

absl::Status ApplyConcurrency(const std::string& text, WorkerConfig& config) {
  ASSIGN_OR_RETURN(int64_t number, ParseNumber(text, 1, kConcurrencyMax));
  config.options.concurrency = static_cast<int>(number);
  return absl::OkStatus();
}

absl::Status ApplyData(const std::string& text, WorkerConfig& config) {
  ASSIGN_OR_RETURN(auto pair, ParsePair(text));
  // Checked here, so that the sentence names the setting.
  RETURN_IF_ERROR(DataSources().Configure(pair.first, pair.second));
  config.data.push_back(std::move(pair));
  return absl::OkStatus();
}

absl::Status ApplyLabel(const std::string& text, WorkerConfig& config) {
  ASSIGN_OR_RETURN(auto pair, ParsePair(text));
  config.options.labels[pair.first] = pair.second;
  return absl::OkStatus();
}

absl::Status ApplyAllow(const std::string& text, WorkerConfig& config) {
  RETURN_IF_ERROR(CheckComputationNames({text}));
  config.allow.push_back(text);
  return absl::OkStatus();
}

absl::Status ApplyGrace(const std::string& text, WorkerConfig& config) {
  // A bare number means seconds.
  bool is_bare = !text.empty() && std::isdigit(static_cast<unsigned char>(text.back()));
  absl::Duration grace;
  if (!absl::ParseDuration(is_bare ? text + "s" : text, &grace) || grace < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a length of time, for example 20s", text));
  }
  config.options.grace = grace;
  return absl::OkStatus();
}

absl::Status ApplyExitWhenDrained(const std::string& text, WorkerConfig& config) {
  if (text != "true" && text != "false") {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is neither true nor false", text));
  }
  config.options.exit_when_drained = text == "true";
  return absl::OkStatus();
}

absl::Status ApplyCache(const std::string& text, WorkerConfig& config) {
  ASSIGN_OR_RETURN(int64_t megabytes, ParseNumber(text, 0, int64_t{1} << 30));
  config.cache_bytes = megabytes << 20;
  return absl::OkStatus();
}

template <int64_t WorkerOptions::*limit>
absl::Status ApplyMegabytes(const std::string& text, WorkerConfig& config) {
  ASSIGN_OR_RETURN(int64_t megabytes, ParseNumber(text, 1, int64_t{1} << 30));
  config.options.*limit = megabytes << 20;
  return absl::OkStatus();
}

absl::Status ApplyLogLevel(const std::string& text, WorkerConfig& config) {
  if (ParseLogLevel(text, &config.log_level)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("\"{}\" is not a log level; choose debug, info, warning, error or off", text));
}

absl::Status ApplyPopulation(const std::string& text, WorkerConfig& config) {
  config.options.population = text;
  return absl::OkStatus();
}

absl::Status ApplyInsecure(const std::string& text, WorkerConfig& config) {
  if (text != "true" && text != "false") {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is neither true nor false", text));
  }
  config.security.is_insecure = text == "true";
  return absl::OkStatus();
}

template <std::string ChannelSecurity::*file>
absl::Status ApplyFile(const std::string& text, WorkerConfig& config) {
  config.security.*file = text;
  return absl::OkStatus();
}

constexpr WorkerSetting kSettings[] = {
    {"server", "127.0.0.1:7433", "Address of the server.", false, ApplyServer},
    {"tls_ca", "", "PEM file with the authorities of the server's certificate, or system; turns TLS on.", false,
     ApplyFile<&ChannelSecurity::tls_ca>},
    {"tls_cert", "", "PEM file with this worker's own certificate, for a server that asks for one.", false,
     ApplyFile<&ChannelSecurity::tls_cert>},
    {"tls_key", "", "PEM file with the key of --tls-cert.", false, ApplyFile<&ChannelSecurity::tls_key>},
    {"token_file", "", "File with the token that this worker shows; read again when it changes.", false,
     ApplyFile<&ChannelSecurity::token_file>},
    {"insecure", "false", "true: send the token to another machine although nothing is encrypted.", false,
     ApplyInsecure},
    {"name", "", "Name of this worker, unique among those that run; by default the host's with random letters.", false,
     ApplyName},
    {"population", "default", "Population whose tasks it takes.", false, ApplyPopulation},
    {"concurrency", "1", "Tasks at a time.", false, ApplyConcurrency},
    {"data", "", "Local data as NAME=LOCATION, for example debian-index=apt or debian-index=index.snapshot.", true,
     ApplyData},
    {"label", "", "A label as KEY=VALUE, matched against the tasks' requirements.", true, ApplyLabel},
    {"allow", "", "Run only this computation; by default all built-in ones whose data is there.", true, ApplyAllow},
    {"grace", "20s", "When told to stop: how long running tasks may go on before they are given back.", false,
     ApplyGrace},
    {"exit_when_drained", "false",
     "true: end when an operator drains this worker, instead of waiting to be taken back.", false,
     ApplyExitWhenDrained},
    {"cache_megabytes", "1024", "Memory for broadcasts that several tasks need.", false, ApplyCache},
    {"broadcast_megabytes", "4096", "Most that it downloads for one task.", false,
     ApplyMegabytes<&WorkerOptions::broadcast_bytes_max>},
    {"contribution_megabytes", "1024", "Most that it returns from one task, whatever the server asks for.", false,
     ApplyMegabytes<&WorkerOptions::contribution_bytes_max>},
    {"log_level", "info", "debug, info, warning, error or off.", false, ApplyLogLevel},
};

}  // namespace

std::string WorkerSetting::flag() const {
  std::string name = fmt::format("--{}", key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string WorkerSetting::variable() const {
  std::string name = fmt::format("SHEAF_{}", key);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

std::span<const WorkerSetting> WorkerSettings() { return kSettings; }

const WorkerSetting* FindWorkerSetting(std::string_view key) {
  for (const WorkerSetting& setting : kSettings) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

}  // namespace sheaf
