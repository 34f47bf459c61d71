#include "base/random.h"

#include <catch2/catch.hpp>
#include <set>

namespace sheaf {
namespace {

TEST_CASE("The same seed gives the same sequence") {
  SeededRandom a(7), b(7), c(8);
  REQUIRE(a.Token(32) == b.Token(32));
  REQUIRE(a.Bits() == b.Bits());
  REQUIRE(b.Bits() != c.Bits());
}

TEST_CASE("Below covers its range and nothing else") {
  SeededRandom random(1);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.Below(10));
  REQUIRE(seen.size() == 10);
  REQUIRE(*seen.rbegin() == 9);
}

TEST_CASE("Between stays between") {
  SeededRandom random(1);
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration d = random.Between(absl::Seconds(1), absl::Seconds(2));
    REQUIRE(d >= absl::Seconds(1));
    REQUIRE(d < absl::Seconds(2));
  }
}

TEST_CASE("Tokens do not repeat") {
  SystemRandom random;
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(random.Token(26));
  REQUIRE(seen.size() == 1000);
}

}  // namespace
}  // namespace sheaf
