// Wire: how a federation's test, workers and command line reach its server; for tests that hold by each.
//
//   const Wire wire(GENERATE(from_range(kEveryWire)));
//   Federation federation(wire.Options());
//
// Makes the certificates of HTTPS, in a directory that lives as long as it does.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/certificates.h"
#include "tests/e2e/processes.h"

namespace sheaf {

inline constexpr std::array kEveryWire = {ServerAddress::Protocol::kGrpc, ServerAddress::Protocol::kHttp,
                                          ServerAddress::Protocol::kHttps};

// For tests that take seconds.
inline constexpr std::array kGrpcAndHttps = {ServerAddress::Protocol::kGrpc, ServerAddress::Protocol::kHttps};

class Wire {
 public:
  explicit Wire(ServerAddress::Protocol protocol) : protocol_(protocol), directory_(ScratchDirectory()) {
    if (protocol_ != ServerAddress::Protocol::kHttps) return;
    certificates_.emplace(directory_.path());
    server_ = certificates_->Issue("server", "IP:127.0.0.1");
  }

  // Of a federation by it, whose server has these arguments, too.
  FederationOptions Options(std::vector<std::string> server_arguments = {}) const {
    FederationOptions options = {.server_arguments = std::move(server_arguments), .protocol = protocol_};
    if (!certificates_) return options;
    options.server_arguments.insert(options.server_arguments.end(),
                                    {"--tls-cert", server_.certificate, "--tls-key", server_.key});
    options.security.tls_ca = certificates_->authority();
    return options;
  }

 private:
  const ServerAddress::Protocol protocol_;
  const TemporaryDirectory directory_;
  std::optional<Certificates> certificates_;
  CertificateFiles server_;
};

}  // namespace sheaf
