#include "server/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <variant>

#include "base/status_macros.h"
#include "settings/settings.h"
#include "storage/postgres/conninfo.h"

namespace sheaf {
namespace {

void AddLimits(Limits& limits, Settings& settings) {
  for (const LimitRow& row : LimitRows()) {
    if (!row.is_setting) continue;
    const std::string key(row.name);
    const std::string help(row.what);
    if (const auto* time = std::get_if<absl::Duration Limits::*>(&row.field)) {
      absl::Duration& value = limits.**time;
      settings.Duration(key, absl::FormatDuration(value), help, {}, &value);
      continue;
    }
    int64_t& value = limits.*std::get<int64_t Limits::*>(row.field);
    switch (row.kind) {
      case LimitKind::kBytes:
        settings.Bytes(key, FormatBytes(value), help, &value);
        break;
      case LimitKind::kPercent:
        settings.Number(key, fmt::format("{}", value), help, {.max = 100}, &value);
        break;
      default:
        settings.Number(key, fmt::format("{}", value), help, {}, &value);
    }
  }
}

std::string_view Host(std::string_view address) {
  std::string_view host = address.substr(0, address.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

bool IsLoopback(const std::string& address) {
  const std::string_view host = Host(address);
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

absl::Status SetStore(const std::string& text, std::string& store) {
  const bool is_conninfo = IsConninfo(text);
  if (text != "sqlite" && text != "memory" && !is_conninfo) {
    // A URL whose scheme is mistyped may have a password.
    const std::string said = text.find('@') == std::string::npos ? fmt::format("\"{}\"", text) : "what was given";
    return absl::InvalidArgumentError(
        fmt::format("{} is no store; choose sqlite, memory, or a PostgreSQL database as "
                    "postgresql://USER@HOST/DATABASE or \"host=HOST dbname=DATABASE user=USER\"",
                    said));
  }
  if (is_conninfo) RETURN_IF_ERROR(CheckHasNoPassword(text));
  store = text;
  return absl::OkStatus();
}

absl::Status CheckAddress(const Config& config, std::string_view key, const std::string& address) {
  if (Host(address).empty() || address.find(':') == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("{}: \"{}\" is not HOST:PORT, for example 127.0.0.1:7433", key, address));
  }
  if (IsLoopback(address) || config.insecure || !config.tls.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("refusing to listen on {} without TLS: everybody on the way could read and change what is sent; give "
                  "--tls-cert and --tls-key, or listen on 127.0.0.1, or say --insecure if the network is yours alone",
                  address));
}

// As browsers write them.
absl::Status CheckOrigin(std::string_view text) {
  const size_t scheme = text.find("://");
  const std::string_view host = scheme == std::string_view::npos ? "" : text.substr(scheme + 3);
  const bool is_plain = std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("-.:[]").find(c) != std::string_view::npos;
  });
  if ((text.starts_with("http://") || text.starts_with("https://")) && !host.empty() && is_plain)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "is no origin: write it in lower case, without a path, as https://HOST or https://HOST:PORT");
}

constexpr absl::Duration kTakeoverAfterMin = absl::Seconds(1);

absl::Status CheckListen(Config& config) {
  config.is_loopback = IsLoopback(config.listen) && (config.http.empty() || IsLoopback(config.http));
  if (config.tls.certificate.empty() != config.tls.key.empty()) {
    return absl::InvalidArgumentError("TLS needs both, --tls-cert and --tls-key");
  }
  if (config.tls.certificate.empty() && !config.tls.authorities.empty()) {
    return absl::InvalidArgumentError(
        "--tls-client-ca asks for certificates of clients, which needs TLS: give --tls-cert and --tls-key");
  }
  if (config.http.empty() && !config.http_port_file.empty()) {
    return absl::InvalidArgumentError("--http-port-file is for the address of HTTP/1.1: give --http, too");
  }
  if (config.http.empty() && !config.join.empty()) {
    return absl::InvalidArgumentError("--join is for tabs, which call by HTTP/1.1: give --http, too");
  }
  RETURN_IF_ERROR(CheckAddress(config, "listen", config.listen));
  if (config.peer_listen.empty()) config.peer_listen = config.listen.substr(0, config.listen.rfind(':')) + ":0";
  if (Host(config.peer_listen).empty() || config.peer_listen.find(':') == std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("peer_listen: \"{}\" is not HOST:PORT, for example 10.0.0.1:7435", config.peer_listen));
  }
  return config.http.empty() ? absl::OkStatus() : CheckAddress(config, "http", config.http);
}

// What could never be let in would be told to try again for ever.
absl::Status CheckLimits(const Limits& limits, std::span<const Setting> all) {
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
    const std::string flag = FindSetting(all, room.key)->flag();
    const std::string largest_flag = FindSetting(all, room.largest_key)->flag();
    return absl::InvalidArgumentError(
        fmt::format("{} = {} has no room for the largest that {} = {} lets in; raise {}, or lower {}", room.key,
                    room.size_bytes, room.largest_key, room.largest_bytes, flag, largest_flag));
  }
  return absl::OkStatus();
}

}  // namespace

Settings SettingsOf(Invocation& invocation) {
  Config& config = invocation.config;
  Settings settings("sheafd", "the server of Sheaf, a task store for federated computation.");
  settings.Action("--create-operator-token",
                  "Make a token of the role operator in the store, while no server runs on it; print it and end.",
                  &invocation.create_operator_token);
  settings.Text("listen", "127.0.0.1:7433", "Address and port to serve on; port 0 picks a free one.", &config.listen);
  settings.Text("http", "",
                "Address and port to serve HTTP/1.1 on as well, to browsers, curl and through proxies; empty for none.",
                &config.http);
  settings.List("http_origins",
                "A web site whose pages may call by HTTP/1.1, such as https://app.example; otherwise none.",
                [&config](const std::string& text) {
                  config.http_origins.push_back(text);
                  return CheckOrigin(text);
                });
  settings.Text("tls_cert", "", "PEM file with the server's certificate and those up to its authority; turns TLS on.",
                &config.tls.certificate);
  settings.Text("tls_key", "", "PEM file with the key of --tls-cert.", &config.tls.key);
  settings.Text("tls_client_ca", "",
                "PEM file with authorities: clients must show a certificate that one of them signed.",
                &config.tls.authorities);
  settings.Switch("insecure", "Allow an address that other machines can reach without TLS.", &config.insecure);
  settings.Text(
      "data_dir", "sheaf-data",
      "Directory of the store, or with a database of what this server has fetched; created if it is not there.",
      &config.data_dir);
  settings.Custom("store", "sqlite",
                  "sqlite; memory: forgets everything when the server ends; or a PostgreSQL database, such as "
                  "postgresql://USER@HOST/DATABASE.",
                  [&config](const std::string& text) { return SetStore(text, config.store); });
  settings.Text("port_file", "", "File to write the address to once the server is ready.", &config.port_file);
  settings.Text("join", "",
                "Directory with computations.js, which tabs of browsers may run as workers at /join; empty for none.",
                &config.join);
  settings.Text("http_port_file", "", "The same for the address of HTTP/1.1.", &config.http_port_file);
  settings.Level("log_level", "info", "debug, info, warning, error or off.", &config.log_level);
  settings.Duration("stop_grace", "1s", "How long open calls may take to end when the server is told to stop.", {},
                    &config.stop_grace);
  settings.Duration("takeover_after", "4s",
                    "How long the owner of a database may be silent before this server takes it over; the same for all "
                    "servers of a database.",
                    {}, &config.takeover_after);
  settings.Text(
      "peer_listen", "",
      "Address and port for the other servers of a database, which forward calls to its owner there; empty for "
      "the host of --listen and a free port.",
      &config.peer_listen);
  AddLimits(config.limits, settings);
  return settings;
}

absl::StatusOr<Invocation> ParseInvocation(const std::vector<std::string>& arguments, const Environment& environment) {
  Invocation invocation;
  const Settings settings = SettingsOf(invocation);
  ASSIGN_OR_RETURN(invocation.output, settings.Read(arguments, environment, [&] {
    RETURN_IF_ERROR(CheckListen(invocation.config));
    if (invocation.config.takeover_after < kTakeoverAfterMin) {
      return absl::InvalidArgumentError(fmt::format(
          "takeover_after = {} is less than {}: a database that is slow for a moment would change its server",
          absl::FormatDuration(invocation.config.takeover_after), absl::FormatDuration(kTakeoverAfterMin)));
    }
    return CheckLimits(invocation.config.limits, settings.all());
  }));
  return invocation;
}

}  // namespace sheaf
