// Checksums: CRC-32 against accidents on disk, SHA-256 to name content.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sheaf {

// CRC-32 (ISO 3309, as gzip). `seed` continues a previous checksum.
uint32_t Crc32(std::string_view bytes, uint32_t seed = 0);

// SHA-256 (FIPS 180-4) of a whole, in lower-case hex.
std::string Sha256Hex(std::string_view bytes);

// True for 64 characters of [0-9a-f]. Check this before a digest becomes part of a path.
bool IsSha256Hex(std::string_view text);

// SHA-256 of bytes that come in pieces. Not thread-safe.
//
//   Sha256 hash;
//   hash.Update(piece);
//   std::string digest = std::move(hash).Hex();
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void Update(std::string_view bytes);
  std::string Hex() &&;

 private:
  friend std::string Sha256Hex(std::string_view bytes);
  std::string FinalHex();

  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace sheaf
