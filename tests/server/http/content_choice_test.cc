#include "server/http/content_choice.h"

#include <catch2/catch.hpp>
#include <string>

namespace sheaf {
namespace {

TEST_CASE("Whoever names the tag of an answer has it already") {
  const std::string tag = "\"1f3a\"";
  for (const std::string list : {"\"1f3a\"", "W/\"1f3a\"", " * ", "\"a\", \"1f3a\"", "\"a,b\",W/\"1f3a\" , \"c\""}) {
    INFO(list);
    CHECK(NamesTag(list, tag));
  }
  for (const std::string list :
       {"", "1f3a", "\"1f3a", "\"1f3A\"", "\"1f3a-gzip\"", "\"*\"", "\"a\" 1f3a\"", "*, \"a\""}) {
    INFO(list);
    CHECK_FALSE(NamesTag(list, tag));
  }
  CHECK_FALSE(NamesTag(std::string(10'000, '"'), tag));
}

TEST_CASE("An answer is compressed for whoever takes gzip") {
  for (const std::string field : {"gzip", "GZIP", "x-gzip", "deflate, gzip;q=0.5, br", "*", "br, *;q=0.1",
                                  "gzip; q=0.001", "gzip;level=9", "identity;q=0,gzip", "gzip;q=1.0, *;q=0"}) {
    INFO(field);
    CHECK(AcceptsGzip(field));
  }
  for (const std::string field :
       {"", "identity", "br", "gzip;q=0", "gzip ; Q=0.000", "*, gzip;q=0", "*;q=0", "gzippy", ",;,=,"}) {
    INFO(field);
    CHECK_FALSE(AcceptsGzip(field));
  }
}

}  // namespace
}  // namespace sheaf
