#include "tls/self_signed.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string_view>

#include "tls/openssl_handles.h"

namespace sheaf {
namespace {

constexpr absl::Duration kClockDifference = absl::Hours(24);
constexpr absl::Duration kLifetime = absl::Hours(24 * 3650);
// Version 3, the one that has extensions.
constexpr long kX509Version = 2;

absl::Status Fail(std::string_view step) {
  const unsigned long error = ERR_get_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(error);
  return absl::InternalError(fmt::format("cannot make a certificate: {}: {}", step, reason == nullptr ? "" : reason));
}

bool AddExtension(X509& certificate, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &certificate, &certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(&certificate, extension.get(), -1) == 1;
}

template <typename Write>
std::string Pem(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || write(bio.get()) != 1) return "";
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

}  // namespace

absl::StatusOr<LoadedCertificates> MakeSelfSigned(const std::string& name, absl::Time now) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  if (key == nullptr || certificate == nullptr) return Fail("the key");
  X509& x509 = *certificate;
  X509_NAME* const subject = X509_get_subject_name(&x509);
  const absl::Time valid_from = now - kClockDifference;
  const absl::Time expire_time = now + kLifetime;
  if (X509_set_version(&x509, kX509Version) != 1 || ASN1_INTEGER_set(X509_get_serialNumber(&x509), 1) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(&x509), absl::ToTimeT(valid_from)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(&x509), absl::ToTimeT(expire_time)) == nullptr ||
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1,
                                 -1, 0) != 1 ||
      X509_set_issuer_name(&x509, subject) != 1 || X509_set_pubkey(&x509, key.get()) != 1) {
    return Fail("its fields");
  }
  if (!AddExtension(x509, NID_basic_constraints, "critical,CA:TRUE") ||
      !AddExtension(x509, NID_subject_alt_name, "DNS:" + name)) {
    return Fail("its extensions");
  }
  if (X509_sign(&x509, key.get(), EVP_sha256()) == 0) return Fail("its signature");
  LoadedCertificates made = {.certificate = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, &x509); }),
                             .key = Pem([&](BIO* bio) {
                               return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
                             }),
                             .valid_from = absl::FromTimeT(absl::ToTimeT(valid_from)),
                             .expire_time = absl::FromTimeT(absl::ToTimeT(expire_time))};
  if (made.certificate.empty() || made.key.empty()) return Fail("its text");
  return made;
}

}  // namespace sheaf
