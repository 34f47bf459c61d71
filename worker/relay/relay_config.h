// RelayConfig: what a worker's settings say about the server that it passes its tasks on to.
//
//   RelayConfig config;
//   AddRelaySettings(settings, config);
//   ASSIGN_OR_RETURN(const std::string output, settings.Read(arguments, environment));
//   if (config.is_wanted()) LogInfo("passes tasks on to {}", config.server);
#pragma once

#include <string>

#include "sdk/cpp/client/channel_options.h"
#include "settings/settings.h"
#include "worker/relay/relayed_spec.h"

namespace sheaf {

struct RelayConfig {
  // The server below; empty: this worker computes itself.
  std::string server;
  ChannelSecurity security;
  RelayOptions options;

  bool is_wanted() const { return !server.empty(); }
};

// The rows. The values go to `config`, which outlives `settings`.
void AddRelaySettings(Settings& settings, RelayConfig& config);

}  // namespace sheaf
