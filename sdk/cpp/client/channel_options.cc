#include "sdk/cpp/client/channel_options.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "sdk/cpp/client/token_file.h"
#include "tls/certificates.h"

namespace sheaf {

bool IsLoopback(std::string_view address) {
  for (std::string_view prefix : {"127.", "localhost:", "[::1]:", "unix:", "unix-abstract:"}) {
    if (address.starts_with(prefix)) return true;
  }
  return false;
}

absl::Status CheckChannelSecurity(std::string_view address, const ChannelSecurity& security) {
  if (!security.uses_tls() && (!security.tls_cert.empty() || !security.tls_key.empty())) {
    return absl::InvalidArgumentError(
        "a client certificate needs TLS: name the authorities of the server's certificate with --tls-ca (a file, or "
        "\"system\")");
  }
  RETURN_IF_ERROR(CheckCertificates({.certificate = security.tls_cert,
                                     .key = security.tls_key,
                                     .authorities = security.tls_ca == "system" ? "" : security.tls_ca}));
  if (security.token_file.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ReadTokenFile(security.token_file).status());
  if (security.uses_tls() || security.is_insecure || IsLoopback(address)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("refusing to send the token of {} to {} in the clear, where everybody on the way could read it; use "
                  "TLS (--tls-ca FILE, or --tls-ca system), or say --insecure if the network is yours alone",
                  security.token_file, address));
}

}  // namespace sheaf
