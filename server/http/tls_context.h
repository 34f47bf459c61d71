// TlsContext: with what the server's end of TLS shakes hands. What is replaced serves the next connection; those there
// are go on.
//
//   TlsContext context;
//   RETURN_IF_ERROR(context.Use(loaded));         // Again when the certificate is renewed.
//   ByteStream stream(fd, context.NewSession());
//
// TLS 1.2 or later. No session is resumed: a client that shows a certificate is checked against the authorities of
// today, and nothing is remembered of those who have gone. Thread-safe.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "tls/certificates.h"

namespace sheaf {

struct FreeSsl {
  void operator()(SSL* session) const { SSL_free(session); }
};
using TlsSession = std::unique_ptr<SSL, FreeSsl>;

class TlsContext {
 public:
  // INVALID_ARGUMENT, with OpenSSL's reason, if it takes something for wrong that CheckCertificates did not.
  absl::Status Use(const LoadedCertificates& loaded) EXCLUDES(mutex_);
  // For one connection; null if there is no memory for it. After Use.
  TlsSession NewSession() const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::shared_ptr<SSL_CTX> context_ GUARDED_BY(mutex_);
};

// The names in the certificate that the client showed: its alternative names, or else its common name; none without
// one. The same as gRPC's GetPeerIdentity.
std::vector<std::string> CertificateNames(const SSL& session);

}  // namespace sheaf
