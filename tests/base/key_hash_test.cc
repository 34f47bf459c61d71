// Hashes of keys that strangers choose.
#include "base/key_hash.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace sheaf {
namespace {

// How many of the values fall on one that another fell on already, in 2^16 places.
template <typename Keys>
size_t NumCollisions(const Keys& keys, int shift) {
  std::set<size_t> places;
  for (const auto& key : keys) places.insert((KeyHash()(key) >> shift) & 0xffff);
  return keys.size() - places.size();
}

TEST_CASE("Whatever keys have in common, their hashes have nothing") {
  constexpr int64_t kKeys = 4096;
  std::vector<std::vector<std::string>> series(8);
  for (int64_t i = 0; i < kKeys; ++i) {
    const std::string number = std::to_string(i);
    const std::string raw(reinterpret_cast<const char*>(&i), sizeof i);
    series[0].push_back(number);
    series[1].push_back(std::string(1000, 'k') + number);
    series[2].push_back(number + std::string(1000, 'k'));
    series[3].push_back(raw);
    series[4].push_back(std::string(static_cast<size_t>(i), 'a'));
    series[5].push_back(std::string(8, '\0') + raw + "x");
    // absl::Hash of the release of Debian 12 gives all of these one value.
    constexpr uint64_t kSaltOfAbsl = 0x13198A2E03707344u;
    series[6].push_back(std::string(reinterpret_cast<const char*>(&kSaltOfAbsl), 8) + raw + "x");
    series[7].push_back(raw.substr(0, 3));
  }
  // Of so many random values 124 collide, give or take 11.
  for (size_t s = 0; s < series.size(); ++s) {
    for (const int shift : {0, 7, 48}) {
      INFO("series " << s << ", bits from " << shift);
      CHECK(NumCollisions(series[s], shift) < 250);
    }
  }
  for (int step = 0; step < 52; ++step) {
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < static_cast<uint64_t>(kKeys); ++i) numbers.push_back(i << step);
    for (const int shift : {0, 7, 48}) {
      INFO("integers at distances of 2^" << step << ", bits from " << shift);
      CHECK(NumCollisions(numbers, shift) < 250);
    }
  }
}

TEST_CASE("The same key has the same hash, however it is held, as long as the process runs") {
  CHECK(KeyHash()(std::string("key")) == KeyHash()(std::string_view("a key").substr(2)));
  CHECK(KeyHash()("") == KeyHash()(std::string()));
  CHECK(KeyHash()(std::string("a")) != KeyHash()(std::string("a\0", 2)));
  CHECK(ProcessSecret() == ProcessSecret());
  CHECK(std::set<uint64_t>(ProcessSecret().begin(), ProcessSecret().end()).size() == ProcessSecret().size());
}

}  // namespace
}  // namespace sheaf
