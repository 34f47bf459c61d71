// ChannelCertificates: what is in the certificate files of a client, and whether there is something else by now.
//
//   ChannelCertificates certificates(options.security, /*uses_tls=*/true);
//   ASSIGN_OR_RETURN(const ChannelCertificates::Current current, certificates.Look(now));   // For each call.
//   if (current.version != connected_version) ConnectWith(*current.loaded);
//
// Files are looked at each second; renewed ones that cannot work are passed over (tls/certificate_renewal.h). Not
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "sdk/cpp/client/channel_options.h"
#include "tls/certificate_renewal.h"

namespace sheaf {

class ChannelCertificates {
 public:
  // `security` of a channel that has TLS, or else no files are read.
  ChannelCertificates(const ChannelSecurity& security, bool uses_tls);

  struct Current {
    // As long as this object looks at nothing else.
    const LoadedCertificates* loaded;
    // Another one for each that `loaded` was.
    int64_t version;
  };
  // The error, naming the file, if certificates cannot be read and never could.
  absl::StatusOr<Current> Look(absl::Time now);

 private:
  const CertificateFiles files_;
  const LoadedCertificates none_;
  std::optional<CertificateRenewal> renewal_;
  absl::Time looked_ = absl::InfinitePast();
  int64_t version_ = 0;
};

}  // namespace sheaf
