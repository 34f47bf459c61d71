#include "worker/relay/relay_config.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/status_macros.h"
#include "sdk/cpp/client/server_address.h"

namespace sheaf {
namespace {

absl::Status SetShare(const std::string& text, double& share) {
  size_t end = 0;
  double value = std::numeric_limits<double>::quiet_NaN();
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {
    end = std::string::npos;
  }
  if (end != text.size() || !(value > 0 && value <= 1)) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is no share: a number above 0 and up to 1", text));
  }
  share = value;
  return absl::OkStatus();
}

}  // namespace

void AddRelaySettings(Settings& settings, RelayConfig& config) {
  RelayOptions& options = config.options;
  ChannelSecurity& security = config.security;
  settings.Custom("relay", "",
                  "Compute nothing here, but pass each task on to this server, as a round of its own, and return what "
                  "its workers returned, combined. HOST:PORT or a URL.",
                  [&config](const std::string& text) {
                    if (!text.empty()) RETURN_IF_ERROR(ParseServerAddress(text).status());
                    config.server = text;
                    return absl::OkStatus();
                  });
  settings.Text("relay_population", "default", "Population of that server whose workers do it.", &options.population);
  settings.Number("relay_slots", "0", "Tasks that each task becomes; 0: a task lists those that it stands for.",
                  {.min = 0, .max = std::numeric_limits<int32_t>::max()}, &options.slots);
  settings.Number("relay_min_clients", "1", "Return nothing that combines fewer clients.",
                  {.max = std::numeric_limits<int64_t>::max()}, &options.min_clients);
  settings.Custom("relay_min_share", "1",
                  "Share of the tasks that suffices when nine tenths of the attempt's time are over.",
                  [&options](const std::string& text) { return SetShare(text, options.min_share); });
  settings.Text("relay_token_file", "",
                "File with the token, of role relay, that is shown to that server; read again when it changes.",
                &security.token_file);
  settings.Text("relay_tls_ca", "", "As --tls-ca, for that server.", &security.tls_ca);
  settings.Text("relay_tls_cert", "", "As --tls-cert, for that server.", &security.tls_cert);
  settings.Text("relay_tls_key", "", "As --tls-key, for that server.", &security.tls_key);
}

}  // namespace sheaf
