#include "storage/shard.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>

namespace sheaf {
namespace {

TEST_CASE("A name says in which shard what it names is") {
  CHECK(NamePrefix('r', 0) == "r-");
  CHECK(NamePrefix('r', 3) == "r3-");
  CHECK(NamePrefix('b', 15) == "b15-");
  for (Shard shard = kHomeShard; shard < kNumShards; ++shard) {
    for (const char kind : {'r', 'b', 'c'}) {
      const std::string name = NamePrefix(kind, shard) + "7k2m9q4x";
      INFO(name);
      CHECK(ShardOf(name) == shard);
      // A task of it, and a name with more parts.
      CHECK(ShardOf(name + "/17") == shard);
      CHECK(ShardOf(name + "-12-x") == shard);
    }
  }
}

TEST_CASE("A name that says no shard is one of the first") {
  for (const char* name : {"",
                           "-",
                           "r",
                           "r3",
                           "3",
                           "3-",
                           "33-x",
                           "r-",
                           "r-3",
                           "r-3-x",
                           "-3-x",
                           "r/3-x",
                           "r0-x",
                           "r00-x",
                           "r03-x",
                           "r+3-x",
                           "r 3-x",
                           "r3 -x",
                           "r3x-x",
                           "rx3-x",
                           "r3/17-x",
                           "rr3-x",
                           "r--3-x",
                           "r100-x",
                           "r999-x",
                           "r2147483647-x",
                           "r2147483648-x",
                           "r-1-x",
                           "r18446744073709551619-x",
                           "r0x3-x",
                           "r3.0-x",
                           "r\xc2\xb3-x"}) {
    INFO(name);
    // Of "33-x" the first character is its kind.
    CHECK(ShardOf(name) == (std::string(name) == "33-x" ? 3 : kHomeShard));
  }
  CHECK(ShardOf(std::string("r3\0-x", 5)) == kHomeShard);
  CHECK(ShardOf(std::string("r\0003-x", 5)) == kHomeShard);
  CHECK(ShardOf(std::string(1 << 20, '7')) == kHomeShard);
  CHECK(ShardOf("r" + std::string(1 << 20, '7') + "-x") == kHomeShard);
  // It looks no further than the name.
  CHECK(ShardOf(std::string_view("r3-x").substr(0, 2)) == kHomeShard);
}

}  // namespace
}  // namespace sheaf
