#include "base/checksum.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

TEST_CASE("SHA-256 gives the digests of FIPS 180-4") {
  CHECK_THAT(Sha256Hex(""), Catch::Equals("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
  CHECK_THAT(Sha256Hex("abc"), Catch::Equals("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}

TEST_CASE("SHA-256 of pieces is SHA-256 of the whole") {
  Sha256 hash;
  hash.Update("a");
  hash.Update("");
  hash.Update("bc");
  REQUIRE(std::move(hash).Hex() == Sha256Hex("abc"));
}

TEST_CASE("Only 64 lower-case hexadecimal characters are a digest") {
  REQUIRE(IsSha256Hex(Sha256Hex("x")));
  REQUIRE_FALSE(IsSha256Hex(""));
  REQUIRE_FALSE(IsSha256Hex(std::string(64, 'A')));
  REQUIRE_FALSE(IsSha256Hex(std::string(63, 'a')));
  REQUIRE_FALSE(IsSha256Hex("../" + std::string(61, 'a')));
}

TEST_CASE("CRC-32 continues from a seed") {
  REQUIRE(Crc32("123456789") == 0xCBF43926u);
  REQUIRE(Crc32("6789", Crc32("12345")) == Crc32("123456789"));
  REQUIRE(Crc32(std::string_view(), 5) == 5);
}

}  // namespace
}  // namespace sheaf
