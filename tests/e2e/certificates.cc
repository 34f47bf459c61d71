#include "tests/e2e/certificates.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

namespace sheaf {
namespace {

// None of the words has a quote in it.
void OpenSsl(const std::vector<std::string>& words) {
  std::string command = "/usr/bin/openssl";
  for (const std::string& word : words) command += " '" + word + "'";
  INFO(command);
  REQUIRE(std::system((command + " >/dev/null 2>&1").c_str()) == 0);
}

}  // namespace

Certificates::Certificates(std::string directory, const std::string& name)
    : directory_(std::move(directory)), name_(name), authority_(Path(name + ".pem")) {
  OpenSsl({"req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
           "/CN=" + name, "-keyout", Path(name + ".key"), "-out", authority_});
}

CertificateFiles Certificates::Issue(const std::string& name, const std::string& names) const {
  const std::string request = Path(name + ".csr");
  const std::string extensions = Path(name + ".ext");
  std::ofstream(extensions) << "basicConstraints=CA:FALSE\n" << (names.empty() ? "" : "subjectAltName=" + names + "\n");
  // Written beside and renamed: whoever watches the files never sees half of one.
  OpenSsl({"req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name,
           "-keyout", Path(name + ".key.new"), "-out", request});
  OpenSsl({"x509", "-req", "-in", request, "-CA", authority_, "-CAkey", Path(name_ + ".key"), "-CAcreateserial",
           "-days", "2", "-extfile", extensions, "-out", Path(name + ".pem.new")});
  std::filesystem::rename(Path(name + ".key.new"), Path(name + ".key"));
  std::filesystem::rename(Path(name + ".pem.new"), Path(name + ".pem"));
  return {.certificate = Path(name + ".pem"), .key = Path(name + ".key"), .authorities = authority_};
}

}  // namespace sheaf
