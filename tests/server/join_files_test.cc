#include "server/web/join_files.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "server/web/join_routes.h"
#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

class Directory {
 public:
  Directory() : path_(std::filesystem::current_path() / "join_files_test") {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~Directory() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_.string(); }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

 private:
  const std::filesystem::path path_;
};

std::string WhyNot(const std::string& directory) {
  const auto files = JoinFiles::Read(directory);
  REQUIRE_FALSE(files.ok());
  CHECK(files.status().code() == absl::StatusCode::kFailedPrecondition);
  return std::string(files.status().message());
}

TEST_CASE("A directory for tabs has computations.js, and files with plain names") {
  const Directory directory;
  CHECK_THAT(WhyNot(directory.path() + "/none"), Contains("/none cannot be read: No such file"));
  CHECK_THAT(WhyNot(directory.path()), Contains("has no computations.js"));
  directory.Write("computations.js", "export const about = {};");
  CHECK(JoinFiles::Read(directory.path())->all().size() == 1);
  directory.Write("a file", "");
  CHECK_THAT(WhyNot(directory.path()), Contains("a file has a name that a URL would have to escape"));
  std::filesystem::remove(directory.path() + "/a file");
  std::filesystem::create_directory(directory.path() + "/more");
  CHECK_THAT(WhyNot(directory.path()), Contains("more is no file"));
  std::filesystem::remove(directory.path() + "/more");
  directory.Write("large", "");
  std::filesystem::resize_file(directory.path() + "/large", JoinFiles::kBytesMax + 1);
  CHECK_THAT(WhyNot(directory.path()), Contains("has more than 256 MiB"));
}

TEST_CASE("Tabs fetch what the directory had when the server started, and only that") {
  const Directory directory;
  directory.Write("computations.js", "export const about = {};");
  directory.Write("data.bin", std::string("\0\1\2", 3));
  Runtime::Options options{.http = "127.0.0.1:0"};
  options.join = *JoinFiles::Read(directory.path());
  RunningServer server(std::move(options));
  directory.Write("computations.js", "something else");
  HttpClient client(server.http_address());
  const HttpAnswer module = client.Ask(Request("GET", "/join/files/computations.js"));
  CHECK(module.status == 200);
  CHECK(module.body == "export const about = {};");
  CHECK(module.field("content-type") == "text/javascript; charset=utf-8");
  CHECK(module.field("x-content-type-options") == "nosniff");
  const std::string known = "if-none-match: " + module.field("etag") + "\r\n";
  CHECK(client.Ask(Request("GET", "/join/files/computations.js", known)).status == 304);
  const HttpAnswer data = client.Ask(Request("GET", "/join/files/data.bin"));
  CHECK(data.body == std::string("\0\1\2", 3));
  CHECK(data.field("content-type") == "application/octet-stream");
  for (const char* path : {"/join/files/", "/join/files/other", "/join/files/../sheafd", "/join/files"}) {
    CHECK(client.Ask(Request("GET", path)).status == 404);
  }
  // A page of another site does not get them by a name that stands for this machine.
  CHECK(client.Ask("GET /join/files/data.bin HTTP/1.1\r\nhost: evil.example\r\n\r\n").status == 421);
}

TEST_CASE("A server that gives tabs nothing has no such files") {
  RunningServer server(Runtime::Options{.http = "127.0.0.1:0"});
  CHECK(HttpClient(server.http_address()).Ask(Request("GET", "/join/files/computations.js")).status == 404);
}

}  // namespace
}  // namespace sheaf
