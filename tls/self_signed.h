// MakeSelfSigned: a certificate that is its own authority, for ends that know each other's certificates from elsewhere.
//
//   ASSIGN_OR_RETURN(const LoadedCertificates own, MakeSelfSigned("sheaf-peer", clock.Now()));
//   // The other end gets own.certificate as its authority, and expects the name.
//
// The key is on the curve P-256, new with each call, of OpenSSL's own randomness, and on no disk.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tls/certificates.h"

namespace sheaf {

// For a server of this DNS name. Valid from a day before `now`, as clocks differ, for ten years: as long as any process
// lives. INTERNAL, in OpenSSL's words, if it cannot be made.
absl::StatusOr<LoadedCertificates> MakeSelfSigned(const std::string& name, absl::Time now);

}  // namespace sheaf
