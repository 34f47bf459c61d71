#include "sdk/cpp/client/channel_certificates.h"

#include <utility>

#include "base/status_macros.h"

namespace sheaf {
namespace {

// How often files are looked at, while there are calls.
constexpr absl::Duration kLookEvery = absl::Seconds(1);

CertificateFiles FilesOf(const ChannelSecurity& security) {
  return {.certificate = security.tls_cert,
          .key = security.tls_key,
          .authorities = security.tls_ca == "system" ? "" : security.tls_ca};
}

}  // namespace

ChannelCertificates::ChannelCertificates(const ChannelSecurity& security, bool uses_tls)
    : files_(uses_tls ? FilesOf(security) : CertificateFiles()) {}

absl::StatusOr<ChannelCertificates::Current> ChannelCertificates::Look(absl::Time now) {
  if (files_.empty()) return Current{.loaded = &none_, .version = version_};
  if (!renewal_) {
    ASSIGN_OR_RETURN(renewal_, CertificateRenewal::Open(files_, now, CertificateEnd::kClient));
    looked_ = now;
  } else if (now < looked_ || now - looked_ >= kLookEvery) {
    looked_ = now;
    renewal_->Look(now, [this](const LoadedCertificates&) {
      ++version_;
      return absl::OkStatus();
    });
  }
  return Current{.loaded = &renewal_->current(), .version = version_};
}

}  // namespace sheaf
