#include "server/http/routes.h"

#include <catch2/catch.hpp>
#include <string>

namespace sheaf {
namespace {

TEST_CASE("A path finds its route, or the longest beginning that has one") {
  const RouteTable routes({{.path = "/"}, {.path = "/a"}, {.path = "/a/b/"}, {.path = "/a/b/c"}, {.path = "/files/"}});
  const auto found = [&](const std::string& path) {
    const Route* route = routes.Find(path);
    return route == nullptr ? "none" : route->path;
  };
  CHECK(found("/a") == "/a");
  CHECK(found("/a/") == "none");
  CHECK(found("/a/b/") == "/a/b/");
  CHECK(found("/a/b/d/e") == "/a/b/");
  CHECK(found("/a/b/c") == "/a/b/c");
  CHECK(found("/files/" + std::string(10'000, '/')) == "/files/");
  CHECK(found(std::string(10'000, '/')) == "none");
  CHECK(found("/") == "/");
  CHECK(found("/none") == "none");
  CHECK(found("//") == "none");
  CHECK(found("") == "none");
  CHECK(found("*") == "none");
}

TEST_CASE("Whoever takes GET takes HEAD") {
  const Route get = {.path = "/", .methods = {HttpMethod::kGet}};
  CHECK(get.Takes(HttpMethod::kHead));
  CHECK_FALSE(get.Takes(HttpMethod::kPost));
  CHECK(get.Allow() == "GET, HEAD");
  const Route both = {.path = "/", .methods = {HttpMethod::kPost, HttpMethod::kGet}};
  CHECK(both.Allow() == "GET, HEAD, POST");
}

}  // namespace
}  // namespace sheaf
