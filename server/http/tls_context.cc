#include "server/http/tls_context.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <array>
#include <string_view>
#include <utility>

namespace sheaf {
namespace {

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
using Names = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;

Bio Open(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }
int NoPassphrase(char*, int, int, void*) { return 0; }

std::vector<Certificate> CertificatesIn(const std::string& text) {
  const Bio bio = Open(text);
  std::vector<Certificate> certificates;
  while (X509* certificate = PEM_read_bio_X509(bio.get(), nullptr, NoPassphrase, nullptr)) {
    certificates.emplace_back(certificate);
  }
  ERR_clear_error();
  return certificates;
}

// What clients may go on with: HTTP/1.1, or nothing said.
int ChooseProtocol(SSL*, const unsigned char** chosen, unsigned char* size, const unsigned char* offered,
                   unsigned offered_size, void*) {
  constexpr std::string_view kHttp("\x08http/1.1");
  unsigned char* found = nullptr;
  const int result = SSL_select_next_proto(&found, size, reinterpret_cast<const unsigned char*>(kHttp.data()),
                                           static_cast<unsigned>(kHttp.size()), offered, offered_size);
  if (result != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

bool UsePair(SSL_CTX* context, const LoadedCertificates& loaded) {
  const std::vector<Certificate> certificates = CertificatesIn(loaded.certificate);
  const Bio bio = Open(loaded.key);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassphrase, nullptr));
  if (certificates.empty() || key == nullptr) return false;
  bool is_used = SSL_CTX_use_certificate(context, certificates.front().get()) == 1 &&
                 SSL_CTX_use_PrivateKey(context, key.get()) == 1;
  for (size_t i = 1; i < certificates.size(); ++i) {
    is_used = is_used && SSL_CTX_add1_chain_cert(context, certificates[i].get()) == 1;
  }
  return is_used;
}

bool UseAuthorities(SSL_CTX* context, const std::string& authorities) {
  if (authorities.empty()) return true;
  bool is_used = true;
  for (const Certificate& authority : CertificatesIn(authorities)) {
    // One that is there twice is no error.
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1) is_used = false;
    SSL_CTX_add_client_CA(context, authority.get());
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return is_used;
}

std::string Text(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))};
}

std::string AddressText(const ASN1_OCTET_STRING* address) {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  const int family = ASN1_STRING_length(address) == 4 ? AF_INET : AF_INET6;
  inet_ntop(family, ASN1_STRING_get0_data(address), text.data(), text.size());
  return text.data();
}

std::vector<std::string> AlternativeNames(const X509& certificate) {
  std::vector<std::string> found;
  const Names names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) found.push_back(Text(name->d.dNSName));
    if (name->type == GEN_EMAIL) found.push_back(Text(name->d.rfc822Name));
    if (name->type == GEN_URI) found.push_back(Text(name->d.uniformResourceIdentifier));
    if (name->type == GEN_IPADD) found.push_back(AddressText(name->d.iPAddress));
  }
  return found;
}

}  // namespace

absl::Status TlsContext::Use(const LoadedCertificates& loaded) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  bool is_made = context != nullptr;
  if (is_made) {
    SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
    // A client that ends its side without saying so in TLS has ended it all the same.
    SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                           SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_num_tickets(context.get(), 0);
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(context.get(),
                     SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    // A record by one call of the kernel, not two: its head is not read by itself.
    SSL_CTX_set_read_ahead(context.get(), 1);
    SSL_CTX_set_alpn_select_cb(context.get(), ChooseProtocol, nullptr);
    is_made = UsePair(context.get(), loaded) && UseAuthorities(context.get(), loaded.authorities);
  }
  if (!is_made) {
    std::array<char, 256> why = {};
    ERR_error_string_n(ERR_peek_last_error(), why.data(), why.size());
    ERR_clear_error();
    return absl::InvalidArgumentError(fmt::format("OpenSSL does not take the certificate or its key: {}", why.data()));
  }
  MutexLock lock(mutex_);
  context_ = std::move(context);
  return absl::OkStatus();
}

TlsSession TlsContext::NewSession() const {
  std::shared_ptr<SSL_CTX> context;
  {
    MutexLock lock(mutex_);
    context = context_;
  }
  TlsSession session(SSL_new(context.get()));
  if (session != nullptr) SSL_set_accept_state(session.get());
  return session;
}

std::vector<std::string> CertificateNames(const SSL& session) {
  const X509* certificate = SSL_get0_peer_certificate(&session);
  if (certificate == nullptr || SSL_get_verify_result(&session) != X509_V_OK) return {};
  std::vector<std::string> names = AlternativeNames(*certificate);
  if (!names.empty()) return names;
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int place = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (place >= 0) names.push_back(Text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place))));
  return names;
}

}  // namespace sheaf
