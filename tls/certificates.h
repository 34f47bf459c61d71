// CheckCertificates: whether the files of a TLS end can work, before the first handshake fails for a reason that
// nobody is told. LoadCertificates also gives what is in them, so that what was checked is what is served.
//
//   RETURN_IF_ERROR(CheckCertificates({.certificate = "server.pem", .key = "server.key"}));
//   ASSIGN_OR_RETURN(LoadedCertificates loaded, LoadCertificates(files));
//
// Looks at the files as they are now; whoever serves with them reads them again when they change. Never says what is in
// a key. Plain values and pure functions, thread-safe.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf {

// Paths of PEM files; empty: none.
struct CertificateFiles {
  // The certificate that this end shows, followed by those between it and its authority, and its key.
  std::string certificate;
  std::string key;
  // The authorities that may have signed the other end's certificate.
  std::string authorities;

  bool empty() const { return certificate.empty() && key.empty() && authorities.empty(); }
};

// What such files hold, each in PEM; empty where there is no file.
struct LoadedCertificates {
  std::string certificate;
  std::string key;
  std::string authorities;
  // When the certificate is valid; at all times, if there is none.
  absl::Time valid_from = absl::InfinitePast();
  absl::Time expire_time = absl::InfiniteFuture();

  friend bool operator==(const LoadedCertificates&, const LoadedCertificates&) = default;
};

// NOT_FOUND or PERMISSION_DENIED if a file cannot be read; INVALID_ARGUMENT if it is not what it should be, or the key
// is not the certificate's, or one of the two is missing, or certificates follow of which none signed it;
// FAILED_PRECONDITION if others may read or write the key. Each names the file and the remedy. That a certificate has
// expired is no error here.
absl::StatusOr<LoadedCertificates> LoadCertificates(const CertificateFiles& files);
absl::Status CheckCertificates(const CertificateFiles& files);

// Whether only its owner (and its group) may read a file that holds a secret. FAILED_PRECONDITION names it.
absl::Status CheckSecretFile(const std::string& path);

}  // namespace sheaf
