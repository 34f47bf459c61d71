// CheckCertificates: whether the files of a TLS end can work, before the first handshake fails for a reason that
// nobody is told.
//
//   RETURN_IF_ERROR(CheckCertificates({.certificate = "server.pem", .key = "server.key"}));
//
// Looks at the files as they are now; whoever serves with them reads them again when they change. Never says what is in
// a key.
#pragma once

#include <string>

#include "absl/status/status.h"

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

// NOT_FOUND or PERMISSION_DENIED if a file cannot be read; INVALID_ARGUMENT if it is not what it should be, or the key
// is not the certificate's, or one of the two is missing; FAILED_PRECONDITION if others may read or write the key. Each
// names the file and the remedy.
absl::Status CheckCertificates(const CertificateFiles& files);

// Whether only its owner (and its group) may read a file that holds a secret. FAILED_PRECONDITION names it.
absl::Status CheckSecretFile(const std::string& path);

}  // namespace sheaf
