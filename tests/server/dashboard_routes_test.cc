// The pages as HTTP has them: what is in the binary, and the fields around it.
#include "server/web/dashboard_routes.h"

#include <libdeflate.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "server/web/embedded_file.h"
#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

std::string PathOf(const EmbeddedFile& file) {
  return file.name == "index.html" ? "/" : fmt::format("/ui/{}", file.name);
}

std::string Decompressed(std::string_view gzip, size_t size) {
  const std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> decompressor(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  std::string plain(size, '\0');
  const libdeflate_result result =
      libdeflate_gzip_decompress(decompressor.get(), gzip.data(), gzip.size(), plain.data(), size, nullptr);
  return result == LIBDEFLATE_SUCCESS ? plain : "";
}

TEST_CASE("The dashboard is served as it is, or compressed to whoever takes that, and once to whoever keeps it") {
  RunningServer server(Runtime::Options{.http = "127.0.0.1:0"});
  HttpClient client(server.http_address());
  std::set<std::string> tags;
  REQUIRE(DashboardFiles().size() >= 3);
  for (const EmbeddedFile& file : DashboardFiles()) {
    const std::string path = PathOf(file);
    INFO(path);
    const HttpAnswer plain = client.Ask(Request("GET", path));
    CHECK(plain.status == 200);
    CHECK((plain.body == file.plain));
    CHECK(plain.field("content-encoding").empty());
    CHECK(plain.field("vary") == "accept-encoding");
    const HttpAnswer gzip = client.Ask(Request("GET", path, "accept-encoding: br, gzip\r\n"));
    CHECK(gzip.status == 200);
    CHECK(gzip.field("content-encoding") == "gzip");
    CHECK((Decompressed(gzip.body, file.plain.size()) == file.plain));
    CHECK(gzip.field("content-type") == plain.field("content-type"));
    CHECK(tags.insert(plain.field("etag")).second);
    CHECK(tags.insert(gzip.field("etag")).second);
    CHECK(gzip.field("cache-control") == (path == "/" ? "no-cache" : "public, max-age=31536000, immutable"));
    const HttpAnswer kept = client.Ask(
        Request("GET", path, fmt::format("accept-encoding: gzip\r\nif-none-match: \"x\", {}\r\n", gzip.field("etag"))));
    CHECK(kept.status == 304);
    CHECK(kept.field("etag") == gzip.field("etag"));
    CHECK(kept.body.empty());
    // The tag of the other form is not this one's.
    CHECK(client.Ask(Request("GET", path, fmt::format("if-none-match: {}\r\n", gzip.field("etag")))).status == 200);
    const HttpAnswer head = client.Ask(Request("HEAD", path));
    CHECK(head.status == 200);
    CHECK(head.field("content-length") == std::to_string(file.plain.size()));
    CHECK(client.Ask(Post(path, "text/plain", "")).status == 405);
  }
}

TEST_CASE("A page of the dashboard runs nothing but its own scripts, and is in nobody's frame") {
  RunningServer server(Runtime::Options{.http = "127.0.0.1:0"});
  HttpClient client(server.http_address());
  for (const EmbeddedFile& file : DashboardFiles()) {
    const HttpAnswer answer = client.Ask(Request("GET", PathOf(file)));
    INFO(file.name);
    const std::string policy = answer.field("content-security-policy");
    CHECK_THAT(policy, Catch::Matchers::StartsWith("default-src 'none'; script-src 'self';"));
    CHECK_THAT(policy, Contains("frame-ancestors 'none'") && Contains("connect-src 'self'") &&
                           Contains("require-trusted-types-for 'script'"));
    CHECK_THAT(policy, !Contains("unsafe") && !Contains("*") && !Contains("http"));
    CHECK(answer.field("x-content-type-options") == "nosniff");
    CHECK(answer.field("referrer-policy") == "no-referrer");
  }
  const std::string page(client.Ask(Request("GET", "/")).body);
  CHECK_THAT(page, !Contains("<style") && !Contains("style=") && !Contains("onload") && !Contains("http:"));
}

TEST_CASE("The dashboard is answered by any name of the server, and its calls are not") {
  RunningServer server(Runtime::Options{.http = "127.0.0.1:0"});
  HttpClient client(server.http_address());
  CHECK(client.Ask("GET / HTTP/1.1\r\nhost: sheaf.example\r\n\r\n").status == 200);
  CHECK(client
            .Ask("POST /sheaf.v1.InspectionService/GetServerInfo HTTP/1.1\r\nhost: sheaf.example\r\ncontent-type: "
                 "application/json\r\ncontent-length: 2\r\n\r\n{}")
            .status == 421);
}

TEST_CASE("What the dashboard does not have is not there") {
  RunningServer server(Runtime::Options{.http = "127.0.0.1:0"});
  HttpClient client(server.http_address());
  for (const std::string path : {"/ui/", "/ui", "/ui/index.html", "/index.html", "/ui/../ui/", "//", "/rounds"}) {
    INFO(path);
    CHECK(client.Ask(Request("GET", path)).status == 404);
  }
}

}  // namespace
}  // namespace sheaf
