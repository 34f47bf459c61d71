#include "base/certificates.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/status/statusor.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// Larger files are not certificates.
constexpr size_t kFileBytesMax = 4 << 20;

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;

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

absl::StatusOr<Certificate> ReadCertificate(const std::string& path, std::string_view what) {
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(path, what));
  const Bio bio = Open(text);
  Certificate certificate(PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr));
  ERR_clear_error();
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError(
      fmt::format("the {} {} holds no certificate in PEM form (\"-----BEGIN CERTIFICATE-----\")", what, path));
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadWhole(path, "key"));
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

}  // namespace

absl::Status CheckSecretFile(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || (status.st_mode & (S_IRWXO | S_IWGRP)) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} holds a secret, but other users may read or change it; run `chmod 600 {}`", path, path));
}

absl::Status CheckCertificates(const CertificateFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(files.key.empty()
                                          ? fmt::format("the certificate {} needs its key", files.certificate)
                                          : fmt::format("the key {} needs its certificate", files.key));
  }
  if (!files.certificate.empty()) {
    ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate(files.certificate, "certificate"));
    ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
    const bool is_its_key = X509_check_private_key(certificate.get(), key.get()) == 1;
    ERR_clear_error();
    if (!is_its_key) {
      return absl::InvalidArgumentError(
          fmt::format("the key {} is not the key of the certificate {}", files.key, files.certificate));
    }
  }
  if (!files.authorities.empty()) RETURN_IF_ERROR(ReadCertificate(files.authorities, "authority").status());
  return absl::OkStatus();
}

}  // namespace sheaf
