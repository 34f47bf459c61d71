#include "server/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "base/status_macros.h"
#include "base/version.h"
#include "server/command_line.h"

namespace sheaf {
namespace {

// Where a value came from, most important first.
struct Source {
  std::function<std::string(const Setting&)> name;
  std::function<std::optional<std::string>(const Setting&)> value;
};

absl::StatusOr<std::string> ScalarText(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return fmt::format("{}", *number);
  if (const auto truth = node.value_exact<bool>()) return fmt::format("{}", *truth);
  return absl::InvalidArgumentError("is neither text, a whole number, true nor false");
}

absl::StatusOr<SettingValues> ReadConfigFile(const std::string& path) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    return absl::InvalidArgumentError(line == 0
                                          ? fmt::format("cannot read the configuration file {}; check --config", path)
                                          : fmt::format("{}:{}: {}", path, line, error.description()));
  }
  SettingValues values;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (FindSetting(name) == nullptr) {
      return absl::InvalidArgumentError(fmt::format("{}:{}: unknown setting {}; the nearest known one is {}", path,
                                                    node.source().begin.line, name, NearestKey(name)));
    }
    absl::StatusOr<std::string> text = ScalarText(node);
    if (!text.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}:{}: {} {}", path, node.source().begin.line, name, std::string(text.status().message())));
    }
    values[name] = *std::move(text);
  }
  return values;
}

std::optional<std::string> Lookup(const SettingValues& values, std::string_view key) {
  const auto found = values.find(key);
  if (found == values.end()) return std::nullopt;
  return found->second;
}

std::string_view Host(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

absl::Status CheckListen(Config& config) {
  const std::string_view host = Host(config.listen);
  config.is_loopback = host == "localhost" || host == "::1" || host.starts_with("127.");
  if (host.empty() || config.listen.find(':') == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("listen: \"{}\" is not HOST:PORT, for example 127.0.0.1:7433", config.listen));
  }
  if (config.tls.certificate.empty() != config.tls.key.empty()) {
    return absl::InvalidArgumentError("TLS needs both, --tls-cert and --tls-key");
  }
  if (config.tls.certificate.empty() && !config.tls.authorities.empty()) {
    return absl::InvalidArgumentError(
        "--tls-client-ca asks for certificates of clients, which needs TLS: give --tls-cert and --tls-key");
  }
  if (config.is_loopback || config.insecure || !config.tls.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("refusing to listen on {} without TLS: everybody on the way could read and change what is sent; give "
                  "--tls-cert and --tls-key, or listen on 127.0.0.1, or say --insecure if the network is yours alone",
                  config.listen));
}

// What could never be let in would be told to try again for ever.
absl::Status CheckLimits(const Limits& limits) {
  struct Room {
    const char* key;
    int64_t size_bytes;
    const char* largest_key;
    int64_t largest_bytes;
  };
  for (const Room& room : {
           Room{"spool_bytes_max", limits.spool_bytes_max, "contribution_bytes_max", limits.contribution_bytes_max},
           Room{"memory_upload_bytes_max", limits.memory_upload_bytes_max, "contribution_bytes_max",
                limits.contribution_bytes_max},
           Room{"upload_bytes_max", limits.upload_bytes_max, "contribution_bytes_max", limits.contribution_bytes_max},
           Room{"upload_bytes_max", limits.upload_bytes_max, "broadcast_bytes_max", limits.broadcast_bytes_max},
       }) {
    if (room.size_bytes >= room.largest_bytes) continue;
    const std::string flag = FindSetting(room.key)->flag();
    const std::string largest_flag = FindSetting(room.largest_key)->flag();
    return absl::InvalidArgumentError(
        fmt::format("{} = {} has no room for the largest that {} = {} lets in; raise {}, or lower {}", room.key,
                    room.size_bytes, room.largest_key, room.largest_bytes, flag, largest_flag));
  }
  return absl::OkStatus();
}

// The settings as rows of text for people.
std::string Table(const std::vector<std::array<std::string, 3>>& rows) {
  std::array<size_t, 2> widths = {0, 0};
  for (const auto& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows)
    text += fmt::format("{:<{}}  {:<{}}  {}\n", row[0], widths[0], row[1], widths[1], row[2]);
  return text;
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& variable) -> std::optional<std::string> {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

absl::StatusOr<Invocation> ParseInvocation(const std::vector<std::string>& arguments, const Environment& environment) {
  ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(arguments));
  Invocation invocation;
  if (!line.help.empty()) {
    invocation.output = line.help;
    return invocation;
  }
  if (line.print_version) {
    invocation.output = VersionLine("sheafd");
    return invocation;
  }
  const std::string path = line.config_file.value_or(environment("SHEAF_CONFIG").value_or(""));
  SettingValues file;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(file, ReadConfigFile(path));
  }

  const Source sources[] = {
      {[](const Setting& setting) { return fmt::format("flag {}", setting.flag()); },
       [&](const Setting& setting) { return Lookup(line.values, setting.key); }},
      {[](const Setting& setting) { return fmt::format("env {}", setting.variable()); },
       [&](const Setting& setting) {
         std::optional<std::string> text = environment(setting.variable());
         // An empty variable is one that is not set: whoever writes `SHEAF_X=` into a unit's file wants the default.
         return text && text->empty() ? std::nullopt : text;
       }},
      {[&](const Setting&) { return fmt::format("file {}", path); },
       [&](const Setting& setting) { return Lookup(file, setting.key); }},
      {[](const Setting&) { return std::string("default"); },
       [](const Setting& setting) { return std::optional<std::string>(setting.default_text); }},
  };
  std::vector<std::array<std::string, 3>> rows = {{"SETTING", "VALUE", "FROM"}};
  for (const Setting& setting : Settings()) {
    for (const Source& source : sources) {
      const std::optional<std::string> text = source.value(setting);
      if (!text) continue;
      if (absl::Status status = setting.apply(*text, invocation.config); !status.ok()) {
        return absl::InvalidArgumentError(
            fmt::format("{}: {} (from {})", setting.key, std::string(status.message()), source.name(setting)));
      }
      rows.push_back({std::string(setting.key), text->empty() ? "-" : *text, source.name(setting)});
      break;
    }
  }
  invocation.create_operator_token = line.create_operator_token;
  RETURN_IF_ERROR(CheckListen(invocation.config));
  RETURN_IF_ERROR(CheckLimits(invocation.config.limits));
  if (line.print_config) invocation.output = Table(rows);
  return invocation;
}

}  // namespace sheaf
