// Certificates: an authority and what it signs, made with the openssl command in a directory of the test.
//
//   Certificates certificates(directory);
//   CertificateFiles server = certificates.Issue("server", "IP:127.0.0.1,DNS:localhost");
//   CertificateFiles client = certificates.Issue("edge-7");
#pragma once

#include <string>

#include "tls/certificates.h"

namespace sheaf {

class Certificates {
 public:
  // In `directory`, which exists. Two authorities of one directory need different names.
  explicit Certificates(std::string directory, const std::string& name = "ca");

  // The authority's own certificate.
  const std::string& authority() const { return authority_; }
  // A certificate for `name` ("CN"), signed by the authority; `names` are its alternative names in openssl's notation.
  // `authorities` of the answer is the authority. The same name again replaces the files.
  CertificateFiles Issue(const std::string& name, const std::string& names = "") const;

 private:
  std::string Path(const std::string& file) const { return directory_ + "/" + file; }

  const std::string directory_;
  const std::string name_;
  const std::string authority_;
};

}  // namespace sheaf
