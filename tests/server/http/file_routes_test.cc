// Aggregates and broadcasts as files, over real sockets.
#include "server/http/file_routes.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "proto/methods.h"
#include "sdk/cpp/client/blob_client.h"
#include "tests/server/http/http_client.h"
#include "tests/server/running_server.h"

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

constexpr int64_t kChunk = 1 << 20;

class FileServer : public RunningServer {
 public:
  explicit FileServer(Limits limits = {}) : RunningServer(Runtime::Options{.http = "127.0.0.1:0", .limits = limits}) {}

  HttpClient Client() { return HttpClient(http_address()); }
  // The path of a broadcast of these bytes.
  std::string Upload(const std::string& bytes) {
    const auto digest = UploadBlob(transport(), random_, bytes);
    INFO(digest.status().ToString());
    REQUIRE(digest.ok());
    digest_ = *digest;
    return "/files/broadcasts/" + digest_;
  }
  std::string etag() const { return "\"" + digest_ + "\""; }

 private:
  SystemRandom random_;
  std::string digest_;
};

// No two places of it look alike.
std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  SeededRandom random(7);
  for (char& byte : bytes) byte = static_cast<char>(random.Bits());
  return bytes;
}

TEST_CASE("A file of many pieces arrives whole, by ranges, and as a head, on one connection") {
  Limits limits;
  limits.chunk_bytes_max = kChunk;
  FileServer server(limits);
  const std::string bytes = Bytes(5 * kChunk + 123);
  const std::string path = server.Upload(bytes);
  HttpClient client = server.Client();
  for (int turn = 0; turn < 2; ++turn) {
    const HttpAnswer whole = client.Ask(Request("GET", path));
    REQUIRE(whole.status == 200);
    CHECK(whole.body == bytes);
    CHECK(whole.field("etag") == server.etag());
    CHECK(whole.field("content-type") == "application/octet-stream");
    CHECK(whole.field("accept-ranges") == "bytes");
    CHECK_THAT(whole.field("cache-control"), Contains("immutable") && Contains("private"));
    CHECK_THAT(whole.field("content-disposition"), Contains(".safetensors"));
  }
  const HttpAnswer head = client.Ask(Request("HEAD", path, "range: bytes=0-1\r\n"));
  CHECK(head.status == 200);
  CHECK(head.field("content-length") == std::to_string(bytes.size()));
  const HttpAnswer part = client.Ask(Request("GET", path, fmt::format("range: bytes=1000-{}\r\n", 3 * kChunk)));
  CHECK(part.status == 206);
  CHECK(part.field("content-range") == fmt::format("bytes 1000-{}/{}", 3 * kChunk, bytes.size()));
  CHECK(part.body == bytes.substr(1000, 3 * kChunk - 999));
  const HttpAnswer end = client.Ask(Request("GET", path, "range: bytes=-10\r\n"));
  CHECK(end.status == 206);
  CHECK(end.body == bytes.substr(bytes.size() - 10));
  const HttpAnswer behind = client.Ask(Request("GET", path, fmt::format("range: bytes={}-\r\n", bytes.size())));
  CHECK(behind.status == 416);
  CHECK(behind.field("content-range") == fmt::format("bytes */{}", bytes.size()));
  const HttpAnswer known = client.Ask(Request("GET", path, fmt::format("if-none-match: {}\r\n", server.etag())));
  CHECK(known.status == 304);
  CHECK(known.body.empty());
  CHECK(known.field("etag") == server.etag());
  CHECK(client.Ask(Request("GET", path, "if-match: \"other\"\r\n")).status == 412);
  CHECK(client.Ask(Request("POST", path)).status == 405);
  CHECK(client.Ask(Request("GET", "/healthz")).status == 200);
}

TEST_CASE("What is not there is not found, whatever the path says") {
  FileServer server;
  HttpClient client = server.Client();
  for (const std::string name : {"", "x", "../etc/passwd", "%2e%2e%2f", "<script>alert(1)</script>"}) {
    for (const std::string folder : {"/files/aggregates/", "/files/broadcasts/"}) {
      INFO(folder + name);
      const HttpAnswer answer = client.Ask(Request("GET", folder + name));
      CHECK((answer.status == 404 || answer.status == 400));
      CHECK(answer.field("content-type") == "application/json");
      CHECK(answer.field("x-content-type-options") == "nosniff");
    }
  }
  CHECK(client.Ask(Request("GET", "/files/broadcasts/" + std::string(64, 'a'))).status == 404);
  CHECK(client.Ask(Request("GET", "/files/")).status == 404);
}

TEST_CASE("A client that takes a file slowly, or goes, costs one piece, and the server goes on") {
  Limits limits;
  limits.chunk_bytes_max = kChunk;
  limits.answer_time_max = absl::Milliseconds(300);
  FileServer server(limits);
  const std::string path = server.Upload(Bytes(40 * kChunk));
  HttpClient gone = server.Client();
  gone.Send(Request("GET", path));
  { const HttpClient drops = std::move(gone); }
  HttpClient sleeper = server.Client();
  sleeper.Send(Request("GET", path));
  while (server.runtime().Metrics().find("\nsheaf_answers_cut_total 0") != std::string::npos) {
  }
  // What it finds is what the sockets had room for.
  CHECK(sleeper.DrainUntilHungUp() < 40 * kChunk);
  CHECK(server.Client().Ask(Request("GET", path)).body.size() == 40 * kChunk);
}

TEST_CASE("A file is for whom the method is that reads it") {
  FileServer server;
  const std::string path = server.Upload("a broadcast");
  const v1::CreateRoundResponse round = *BlockingCall(server.transport(), kCreateRound, ARound("round"));
  HttpClient client = server.Client();
  std::string fields;
  const auto make = [&](v1::Role role, const std::string& population) {
    v1::CreateTokenRequest create;
    create.set_request_id(v1::Role_Name(role) + population);
    create.set_name(create.request_id());
    create.add_roles(role);
    if (!population.empty()) create.add_populations(population);
    const HttpAnswer answer = client.Ask(
        Post("/sheaf.v1.AccessService/CreateToken", "application/proto", create.SerializeAsString(), fields));
    v1::CreateTokenResponse created;
    REQUIRE(created.ParseFromString(answer.body));
    return fmt::format("authorization: Bearer {}\r\n", created.secret());
  };
  fields = make(v1::OPERATOR, "");
  const std::string aggregate = "/files/aggregates/" + round.round().id();
  const auto status = [&](const std::string& file, const std::string& shown) {
    return client.Ask(Request("GET", file, shown)).status;
  };
  const std::string submitter = make(v1::SUBMITTER, "");
  // Past the guard: it has released nothing yet.
  CHECK(status(aggregate, submitter) == 400);
  CHECK(status(path, make(v1::WORKER, "")) == 200);
  const std::vector<std::string> others = {make(v1::VIEWER, ""), make(v1::OPERATOR, "default")};
  for (const std::string& file : {aggregate, path}) {
    CHECK(status(file, "") == 401);
    CHECK(status(file, "authorization: Bearer nonsense\r\n") == 401);
    for (const std::string& other : others) CHECK(status(file, other) == 403);
  }
  CHECK(status(aggregate, make(v1::SUBMITTER, "elsewhere")) == 403);
  CHECK(status(path, make(v1::WORKER, "elsewhere")) == 403);
}

TEST_CASE("Whoever loses a right loses the rest of the file") {
  Limits limits;
  limits.chunk_bytes_max = kChunk;
  FileServer server(limits);
  const std::string path = server.Upload(Bytes(40 * kChunk));
  HttpClient client = server.Client();
  client.Send(Request("GET", path));
  // More than the sockets hold is still to come.
  REQUIRE_FALSE(client.IsSilent(60'000));
  v1::CreateTokenRequest create;
  create.set_request_id("token");
  create.set_name("admin");
  create.add_roles(v1::OPERATOR);
  REQUIRE(BlockingCall(server.transport(), kCreateToken, create).ok());
  CHECK(client.DrainUntilHungUp() < 40 * kChunk);
  CHECK(server.Client().Ask(Request("GET", path)).status == 401);
}

}  // namespace
}  // namespace sheaf
