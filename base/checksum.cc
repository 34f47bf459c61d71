#include "base/checksum.h"

#include <libdeflate.h>
#include <openssl/evp.h>

#include <algorithm>

#include "base/check.h"

namespace sheaf {

uint32_t Crc32(std::string_view bytes, uint32_t seed) {
  if (bytes.empty()) return seed;  // Of no bytes at a null pointer it would begin anew.
  return libdeflate_crc32(seed, bytes.data(), bytes.size());
}

bool IsSha256Hex(std::string_view text) {
  return text.size() == 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

struct Sha256::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  ~Context() { EVP_MD_CTX_free(evp); }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  // EVP_sha256() would look the algorithm up again for every digest: that costs more than hashing a kilobyte.
  static const EVP_MD* const kAlgorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  SHEAF_CHECK(EVP_DigestInit_ex(context_->evp, kAlgorithm, nullptr) == 1);
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::Update(std::string_view bytes) {
  SHEAF_CHECK(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Hex() && { return FinalHex(); }

std::string Sha256::FinalHex() {
  unsigned char digest[32];
  SHEAF_CHECK(EVP_DigestFinal_ex(context_->evp, digest, nullptr) == 1);
  std::string hex;
  hex.reserve(64);
  for (unsigned char byte : digest) {
    hex.push_back("0123456789abcdef"[byte >> 4]);
    hex.push_back("0123456789abcdef"[byte & 15]);
  }
  return hex;
}

std::string Sha256Hex(std::string_view bytes) {
  // To make and free a context costs as much as to hash a kilobyte.
  thread_local Sha256 hash;
  SHEAF_CHECK(EVP_DigestInit_ex(hash.context_->evp, nullptr, nullptr) == 1);
  hash.Update(bytes);
  return hash.FinalHex();
}

}  // namespace sheaf
