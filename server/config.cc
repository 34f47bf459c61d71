#include "server/config.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

#include "base/status_macros.h"
#include "settings/settings.h"

namespace sheaf {
namespace {

void AddLimits(Limits& limits, Settings& settings) {
  settings.Duration("lease_default", "30s",
                    "A worker without progress for this long loses its task, unless the round says otherwise.", {},
                    &limits.lease_default);
  settings.Duration("poll_wait_max", "60s",
                    "Longest long poll; keep it below the idle timeout of any proxy on the way.", {},
                    &limits.poll_wait_max);
  settings.Duration("unreferenced_keep", "1h", "Uploads and blobs that nothing refers to are kept this long.", {},
                    &limits.unreferenced_keep);
  settings.Duration("ended_keep", "720h", "Rounds that ended and workers that were not seen are kept this long.", {},
                    &limits.ended_keep);
  settings.Number("ended_rounds_max", "2000",
                  "Rounds that ended and are kept, with their aggregates; the oldest go first.", {},
                  &limits.ended_rounds_max);
  settings.Duration("handshake_timeout", "20s", "Whoever connects and says nothing for this long is hung up on.", {},
                    &limits.handshake_timeout);
  settings.Duration("queue_wait_max", "200ms",
                    "Once a crowd of calls waits for this long, further ones are told to come back.", {},
                    &limits.queue_wait_max);
  settings.Number("queued_calls_max", "2048",
                  "Calls that wait to be done; further ones are refused with a time to come back.", {},
                  &limits.queued_calls_max);
  settings.Bytes("open_request_bytes_max", "512MiB", "Memory for the requests that are being answered.",
                 &limits.open_request_bytes_max);
  settings.Bytes("open_answer_bytes_max", "512MiB", "Memory for answers that clients have not taken yet.",
                 &limits.open_answer_bytes_max);
  settings.Duration("answer_time_max", "2m", "An answer that its client does not take for so long is cut off.", {},
                    &limits.answer_time_max);
  settings.Bytes("receive_bytes_max", "1GiB", "Memory for what is arriving, on all connections.",
                 &limits.receive_bytes_max);
  settings.Number("calls_per_second_max", "100000", "Calls of one identity, that is of all tokens of one name.", {},
                  &limits.calls_per_second_max);
  settings.Number("parked_polls_max", "50000", "Workers that wait in a call; further ones are told to come back later.",
                  {}, &limits.parked_polls_max);
  settings.Number("workers_max", "200000", "Workers that called within ten minutes.", {}, &limits.workers_max);
  settings.Number("workers_per_identity_max", "100000", "Workers per identity.", {}, &limits.workers_per_identity_max);
  settings.Number("population_percent_max", "90",
                  "What one population may have of what the others leave of anything shared, in percent.", {.max = 100},
                  &limits.population_percent_max);
  settings.Number("live_rounds_max", "10000", "Rounds that have not ended.", {}, &limits.live_rounds_max);
  settings.Number("live_tasks_max", "2000000", "Tasks of all rounds that have not ended.", {}, &limits.live_tasks_max);
  settings.Bytes("contribution_bytes_max", "1GiB", "Largest contribution.", &limits.contribution_bytes_max);
  settings.Bytes("broadcast_bytes_max", "16GiB", "Largest broadcast.", &limits.broadcast_bytes_max);
  settings.Bytes("accumulator_bytes_max", "8GiB", "Memory that the accumulators of one round may take.",
                 &limits.accumulator_bytes_max);
  settings.Bytes("spool_bytes_max", "256GiB", "Disk for contributions that no checkpoint covers yet.",
                 &limits.spool_bytes_max);
  settings.Bytes("upload_bytes_max", "256GiB", "Disk for uploads under way, by their announced sizes.",
                 &limits.upload_bytes_max);
  settings.Bytes("unfolded_bytes_max", "2GiB", "Memory for contributions that are being checked or wait to be folded.",
                 &limits.unfolded_bytes_max);
  settings.Bytes("memory_upload_bytes_max", "4GiB", "Memory for uploads under way to EPHEMERAL rounds.",
                 &limits.memory_upload_bytes_max);
  settings.Number("uploads_per_identity_max", "1024", "Uploads that one identity may have under way.", {},
                  &limits.uploads_per_identity_max);
  settings.Bytes("checkpoint_spool_bytes", "64MiB", "Contributions spooled before a checkpoint replaces them.",
                 &limits.checkpoint_spool_bytes);
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
  settings.Text("tls_cert", "", "PEM file with the server's certificate and those up to its authority; turns TLS on.",
                &config.tls.certificate);
  settings.Text("tls_key", "", "PEM file with the key of --tls-cert.", &config.tls.key);
  settings.Text("tls_client_ca", "",
                "PEM file with authorities: clients must show a certificate that one of them signed.",
                &config.tls.authorities);
  settings.Switch("insecure", "Allow an address that other machines can reach without TLS.", &config.insecure);
  settings.Text("data_dir", "sheaf-data", "Directory of the store; created if it is not there.", &config.data_dir);
  settings.Choice("store", "sqlite", "sqlite, or memory: forgets everything when the server ends.",
                  {"sqlite", "memory"}, &config.store);
  settings.Text("port_file", "", "File to write the address to once the server is ready.", &config.port_file);
  settings.Level("log_level", "info", "debug, info, warning, error or off.", &config.log_level);
  settings.Duration("stop_grace", "1s", "How long open calls may take to end when the server is told to stop.", {},
                    &config.stop_grace);
  AddLimits(config.limits, settings);
  return settings;
}

absl::StatusOr<Invocation> ParseInvocation(const std::vector<std::string>& arguments, const Environment& environment) {
  Invocation invocation;
  const Settings settings = SettingsOf(invocation);
  ASSIGN_OR_RETURN(invocation.output, settings.Read(arguments, environment, [&] {
    RETURN_IF_ERROR(CheckListen(invocation.config));
    return CheckLimits(invocation.config.limits, settings.all());
  }));
  return invocation;
}

}  // namespace sheaf
