#include "worker/blob_cache.h"

#include <catch2/catch.hpp>

namespace sheaf {
namespace {

std::shared_ptr<const std::string> Bytes(size_t size) { return std::make_shared<const std::string>(size, 'x'); }

TEST_CASE("What was not used for longest leaves the cache first") {
  BlobCache cache(10);
  cache.Insert("a", Bytes(4));
  cache.Insert("b", Bytes(4));
  REQUIRE(cache.Find("a") != nullptr);
  cache.Insert("c", Bytes(4));
  CHECK(cache.Find("a") != nullptr);
  CHECK(cache.Find("b") == nullptr);
  CHECK(cache.Find("c") != nullptr);
  CHECK(cache.bytes() == 8);
}

TEST_CASE("A blob larger than the cache is not kept, and pushes nothing out") {
  BlobCache cache(10);
  cache.Insert("a", Bytes(10));
  cache.Insert("b", Bytes(11));
  CHECK(cache.Find("a") != nullptr);
  CHECK(cache.Find("b") == nullptr);
  cache.Insert("a", Bytes(10));
  CHECK(cache.bytes() == 10);
}

TEST_CASE("What is in use outlives the cache's interest") {
  BlobCache cache(10);
  cache.Insert("a", Bytes(10));
  std::shared_ptr<const std::string> held = cache.Find("a");
  cache.Insert("b", Bytes(10));
  CHECK(cache.Find("a") == nullptr);
  CHECK(held->size() == 10);
}

}  // namespace
}  // namespace sheaf
