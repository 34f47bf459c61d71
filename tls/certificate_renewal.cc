#include "tls/certificate_renewal.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Looks that see the same fault before it is one.
constexpr int kFaultyLooks = 2;
// Time enough to renew by hand, also over holidays.
constexpr absl::Duration kWarnBefore = absl::Hours(14 * 24);
constexpr absl::Duration kWarnEvery = absl::Hours(24);

std::string Day(absl::Time time) { return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone()); }

}  // namespace

absl::StatusOr<CertificateRenewal> CertificateRenewal::Open(CertificateFiles files, absl::Time now,
                                                            CertificateEnd end) {
  ASSIGN_OR_RETURN(LoadedCertificates loaded, LoadCertificates(files));
  CertificateRenewal renewal(std::move(files), std::move(loaded), end);
  renewal.WarnOfEnd(now);
  return renewal;
}

absl::Status CertificateRenewal::CheckRenewal(const LoadedCertificates& found, absl::Time now) const {
  if (found.expire_time <= now) {
    return absl::FailedPreconditionError(fmt::format("the certificate {} expired on {}; put one there that is valid",
                                                     files_.certificate, Day(found.expire_time)));
  }
  if (found.valid_from > now) {
    return absl::FailedPreconditionError(
        fmt::format("the certificate {} is valid only from {}; it is {} from then on, if the clock of this machine is "
                    "right",
                    files_.certificate, Day(found.valid_from), end_ == CertificateEnd::kServer ? "served" : "shown"));
  }
  return absl::OkStatus();
}

void CertificateRenewal::Look(absl::Time now, absl::FunctionRef<absl::Status(const LoadedCertificates&)> use) {
  const bool is_server = end_ == CertificateEnd::kServer;
  absl::StatusOr<LoadedCertificates> found = LoadCertificates(files_);
  absl::Status status = found.status();
  const bool has_changed = status.ok() && *found != current_;
  if (has_changed) status = CheckRenewal(*found, now);
  if (has_changed && status.ok()) status = use(*found);
  if (status.ok()) {
    if (has_changed) {
      current_ = *std::move(found);
      next_warning_ = absl::InfinitePast();
      if (is_server) {
        LogInfo("serving with the renewed certificate {}, valid until {}", files_.certificate,
                Day(current_.expire_time));
      } else {
        LogInfo("connecting with the renewed files of TLS from now on{}",
                files_.certificate.empty() ? ""
                                           : fmt::format(": the certificate {}, valid until {}", files_.certificate,
                                                         Day(current_.expire_time)));
      }
    } else if (!problem_.empty()) {
      LogInfo("the files of the certificate are again those that are {}", is_server ? "served" : "used");
    }
    num_faulty_looks_ = 0;
    fault_.clear();
    problem_.clear();
  } else {
    const std::string message(status.message());
    num_faulty_looks_ = message == fault_ ? num_faulty_looks_ + 1 : 1;
    fault_ = message;
    if (num_faulty_looks_ == kFaultyLooks) {
      problem_ = message;
      if (is_server) {
        LogError("the renewed certificate is not served, the one before is, until {}: {}", Day(current_.expire_time),
                 message);
      } else {
        LogError("the renewed files of TLS are not used, those before are: {}", message);
      }
    }
  }
  WarnOfEnd(now);
}

void CertificateRenewal::WarnOfEnd(absl::Time now) {
  const bool is_server = end_ == CertificateEnd::kServer;
  // Those of clients often live for a day only, and each command would say so.
  if (now < next_warning_ || current_.expire_time - now > (is_server ? kWarnBefore : absl::ZeroDuration())) return;
  next_warning_ = now + kWarnEvery;
  if (current_.expire_time <= now) {
    LogError("the certificate {} expired on {}: {} refuse it; renew it, {} reads it again by itself",
             files_.certificate, Day(current_.expire_time), is_server ? "clients" : "servers",
             is_server ? "the server" : "this program");
  } else {
    LogWarning("the certificate {} expires on {}; renew it, the server reads it again by itself", files_.certificate,
               Day(current_.expire_time));
  }
}

}  // namespace sheaf
