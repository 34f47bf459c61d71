#include "sdk/cpp/client/channel_options.h"

#include <fmt/format.h>

#include "base/status_macros.h"
#include "sdk/cpp/client/server_address.h"
#include "sdk/cpp/client/token_file.h"
#include "tls/certificates.h"

namespace sheaf {

bool UsesTls(std::string_view address, const ChannelSecurity& security) {
  const absl::StatusOr<ServerAddress> parsed = ParseServerAddress(address);
  if (parsed.ok() && parsed->is_http()) return parsed->protocol == ServerAddress::Protocol::kHttps;
  return security.uses_tls();
}

absl::Status CheckChannelSecurity(std::string_view address, const ChannelSecurity& security) {
  ASSIGN_OR_RETURN(const ServerAddress parsed, ParseServerAddress(address));
  const bool uses_tls = UsesTls(address, security);
  if (parsed.is_http() && !uses_tls &&
      (security.uses_tls() || !security.tls_cert.empty() || !security.tls_key.empty())) {
    return absl::InvalidArgumentError(fmt::format(
        "{} is without TLS: write https://, or leave out the certificates (--tls-ca, --tls-cert, --tls-key)", address));
  }
  if (!uses_tls && (!security.tls_cert.empty() || !security.tls_key.empty())) {
    return absl::InvalidArgumentError(
        "a client certificate needs TLS: name the authorities of the server's certificate with --tls-ca (a file, or "
        "\"system\")");
  }
  RETURN_IF_ERROR(CheckCertificates({.certificate = security.tls_cert,
                                     .key = security.tls_key,
                                     .authorities = security.tls_ca == "system" ? "" : security.tls_ca}));
  if (security.token_file.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(ReadTokenFile(security.token_file).status());
  if (uses_tls || security.is_insecure || parsed.is_loopback()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "refusing to send the token of {} to {} in the clear, where everybody on the way could read it; use {}, "
      "or say --insecure if the network is yours alone",
      security.token_file, address, parsed.is_http() ? "https://" : "TLS (--tls-ca FILE, or --tls-ca system)"));
}

}  // namespace sheaf
