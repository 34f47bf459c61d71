#include "base/id.h"

#include <catch2/catch.hpp>
#include <type_traits>
#include <unordered_set>

namespace sheaf {
namespace {

using Apple = StrongId<struct AppleTag>;
using Pear = StrongId<struct PearTag>;

TEST_CASE("Ids of two kinds cannot be swapped") {
  STATIC_REQUIRE_FALSE(std::is_convertible_v<Apple, Pear>);
  STATIC_REQUIRE_FALSE(std::is_convertible_v<std::string, Apple>);
}

TEST_CASE("Ids compare, hash and print as their text") {
  REQUIRE(Apple("a") < Apple("b"));
  REQUIRE(std::unordered_set<Apple>{Apple("a"), Apple("a")}.size() == 1);
  REQUIRE(fmt::format("{}", Apple("a")) == "a");
}

}  // namespace
}  // namespace sheaf
