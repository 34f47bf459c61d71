#include "tls/certificates.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "tls/openssl_handles.h"

namespace sheaf {
namespace {

// Larger files are not certificates.
constexpr size_t kFileBytesMax = 4 << 20;

absl::StatusOr<std::string> ReadWhole(const std::string& path, std::string_view what) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad() || !file.is_open() || text.size() > kFileBytesMax) {
    const std::string message = fmt::format("cannot read the {} {}: {}; check the path and its permissions", what, path,
                                            errno == 0 ? "it is no file of that kind" : std::strerror(errno));
    if (errno == ENOENT) return absl::NotFoundError(message);
    if (errno == EACCES) return absl::PermissionDeniedError(message);
    return absl::InvalidArgumentError(message);
  }
  return text;
}

Bio Open(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

// A key with a passphrase is one that a server cannot use: OpenSSL must not ask the terminal for it.
int NoPassphrase(char*, int, int, void*) { return 0; }

// The certificates of a file, in its order; at least one.
absl::StatusOr<std::vector<Certificate>> ParseCertificates(const std::string& text, const std::string& path,
                                                           std::string_view what) {
  const Bio bio = Open(text);
  std::vector<Certificate> certificates;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(certificate);
  }
  ERR_clear_error();
  if (!certificates.empty()) return certificates;
  return absl::InvalidArgumentError(
      fmt::format("the {} {} holds no certificate in PEM form (\"-----BEGIN CERTIFICATE-----\")", what, path));
}

absl::StatusOr<Key> ParseKey(const std::string& text, const std::string& path) {
  const Bio bio = Open(text);
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) {
    RETURN_IF_ERROR(CheckSecretFile(path));
    return key;
  }
  return absl::InvalidArgumentError(fmt::format(
      "the key {} holds no private key in PEM form without a passphrase (\"-----BEGIN PRIVATE KEY-----\")", path));
}

absl::Time TimeOf(const ASN1_TIME* time, absl::Time otherwise) {
  std::tm parts = {};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? absl::FromTM(parts, absl::UTCTimeZone()) : otherwise;
}

// Clients build the way from the certificate to an authority they know out of what follows it.
absl::Status CheckChain(const std::vector<Certificate>& certificates, const std::string& path) {
  X509* own = certificates.front().get();
  bool is_signed = certificates.size() == 1 || X509_check_issued(own, own) == X509_V_OK;
  for (const Certificate& certificate : certificates) {
    is_signed |= certificate.get() != own && X509_check_issued(certificate.get(), own) == X509_V_OK;
  }
  ERR_clear_error();
  if (is_signed) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "none of the certificates that follow the first one in {} signed it; put the server's own certificate "
      "first, and then those between it and its authority",
      path));
}

absl::Status LoadPair(const CertificateFiles& files, LoadedCertificates& loaded) {
  ASSIGN_OR_RETURN(loaded.certificate, ReadWhole(files.certificate, "certificate"));
  ASSIGN_OR_RETURN(const std::vector<Certificate> certificates,
                   ParseCertificates(loaded.certificate, files.certificate, "certificate"));
  ASSIGN_OR_RETURN(loaded.key, ReadWhole(files.key, "key"));
  ASSIGN_OR_RETURN(const Key key, ParseKey(loaded.key, files.key));
  const bool is_its_key = X509_check_private_key(certificates.front().get(), key.get()) == 1;
  ERR_clear_error();
  if (!is_its_key) {
    return absl::InvalidArgumentError(
        fmt::format("the key {} is not the key of the certificate {}", files.key, files.certificate));
  }
  RETURN_IF_ERROR(CheckChain(certificates, files.certificate));
  loaded.valid_from = TimeOf(X509_get0_notBefore(certificates.front().get()), absl::InfinitePast());
  loaded.expire_time = TimeOf(X509_get0_notAfter(certificates.front().get()), absl::InfiniteFuture());
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSecretFile(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || (status.st_mode & (S_IRWXO | S_IWGRP)) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} holds a secret, but other users may read or change it; run `chmod 600 {}`", path, path));
}

absl::StatusOr<LoadedCertificates> LoadCertificates(const CertificateFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(files.key.empty()
                                          ? fmt::format("the certificate {} needs its key", files.certificate)
                                          : fmt::format("the key {} needs its certificate", files.key));
  }
  LoadedCertificates loaded;
  if (!files.certificate.empty()) RETURN_IF_ERROR(LoadPair(files, loaded));
  if (!files.authorities.empty()) {
    ASSIGN_OR_RETURN(loaded.authorities, ReadWhole(files.authorities, "authority"));
    RETURN_IF_ERROR(ParseCertificates(loaded.authorities, files.authorities, "authority").status());
  }
  return loaded;
}

absl::Status CheckCertificates(const CertificateFiles& files) { return LoadCertificates(files).status(); }

}  // namespace sheaf
