// The parser of requests by itself: what it takes in any pieces, and what it refuses.
#include "server/http/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <string_view>

namespace sheaf {
namespace {

using Catch::Matchers::Contains;

constexpr RequestParser::Bounds kBounds = {.header_bytes_max = 1024, .headers_max = 10, .body_bytes_max = 100};

// Gives the parser `bytes` in pieces, as a connection does; how many it took of them.
size_t Feed(RequestParser& parser, std::string_view bytes, size_t piece, bool uses_space) {
  std::string waiting;
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size() && !parser.is_done() && !parser.refusal(); at += piece) {
    std::string_view arrived = bytes.substr(at, piece);
    if (uses_space && waiting.empty()) {
      const std::span<char> space = parser.Space();
      const size_t direct = std::min(space.size(), arrived.size());
      std::copy_n(arrived.begin(), direct, space.begin());
      if (direct > 0) parser.Wrote(direct);
      taken += direct;
      arrived.remove_prefix(direct);
    }
    waiting.append(arrived);
    while (!waiting.empty()) {
      const size_t used = parser.Take(waiting);
      waiting.erase(0, used);
      taken += used;
      if (used == 0) break;
    }
  }
  return taken;
}

struct Parsed {
  RequestParser parser{kBounds};
  size_t taken;

  explicit Parsed(std::string_view bytes) : taken(Feed(parser, bytes, bytes.size(), false)) {}
};

TEST_CASE("A request is the same in whatever pieces it comes, and what follows it is left alone") {
  const std::string request =
      "POST /a/b?x=1&y=2 HTTP/1.1\r\nHost: localhost:1\r\nContent-Type: text/plain\r\nX-Empty:\r\n"
      "Content-Length: 11\r\n\r\nhello world";
  for (size_t piece = 1; piece <= request.size() + 3; ++piece) {
    for (const bool uses_space : {false, true}) {
      INFO("pieces of " << piece << (uses_space ? ", bodies read in place" : ""));
      RequestParser parser(kBounds);
      CHECK(Feed(parser, request + "GET", piece, uses_space) == request.size());
      REQUIRE(parser.is_done());
      const HttpRequest& parsed = parser.request();
      CHECK(parsed.method == HttpMethod::kPost);
      CHECK(parsed.path == "/a/b");
      CHECK(parsed.query == "x=1&y=2");
      CHECK(parsed.host == "localhost:1");
      CHECK(parsed.Header("content-type") == "text/plain");
      CHECK(parsed.Header("x-empty").empty());
      CHECK(parsed.Header("x-absent").empty());
      CHECK(parsed.body.view() == "hello world");
      CHECK(parsed.keeps_alive);
    }
  }
}

TEST_CASE("A body in chunks is put together, and its trailers are nobody's") {
  const std::string request =
      "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nAuthorization: Bearer x\r\n\r\n";
  for (size_t piece = 1; piece <= request.size(); ++piece) {
    INFO("pieces of " << piece);
    RequestParser parser(kBounds);
    CHECK(Feed(parser, request + "GET", piece, true) == request.size());
    REQUIRE(parser.is_done());
    CHECK(parser.request().body.view() == "hello world");
    CHECK(parser.request().Header("authorization").empty());
  }
}

TEST_CASE("A body of no chunks is empty, in whatever pieces it comes") {
  const std::string request = "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  for (size_t piece = 1; piece <= request.size(); ++piece) {
    INFO("pieces of " << piece);
    RequestParser parser(kBounds);
    CHECK(Feed(parser, request, piece, true) == request.size());
    CHECK(parser.is_done());
    CHECK(parser.request().body.size() == 0);
  }
}

TEST_CASE("The head is known before the body has come") {
  RequestParser parser(kBounds);
  Feed(parser, "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nx", 1000, false);
  CHECK(parser.has_head());
  CHECK_FALSE(parser.is_done());
  CHECK(parser.request().path == "/a");
}

TEST_CASE("A request of HTTP/1.0, and one that says so, is the last of its connection") {
  CHECK_FALSE(Parsed("GET / HTTP/1.0\r\n\r\n").parser.request().keeps_alive);
  CHECK_FALSE(Parsed("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").parser.request().keeps_alive);
}

TEST_CASE("A target that names its host is a path, and its host counts") {
  const Parsed parsed("GET http://b:80/a?c HTTP/1.1\r\nHost: a\r\n\r\n");
  REQUIRE(parsed.parser.is_done());
  Parsed again("GET http://b:80/a?c HTTP/1.1\r\nHost: a\r\n\r\n");
  CHECK(again.parser.request().path == "/a");
  CHECK(again.parser.request().host == "b:80");
}

TEST_CASE("What two readers could read differently, and what is no request, is refused with a reason") {
  struct Row {
    std::string what;
    std::string bytes;
    int status;
    std::string reason;
  };
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  const std::string get = "GET / HTTP/1.1\r\n";
  std::string many;
  for (int i = 0; i < 11; ++i) many += fmt::format("x{}: 1\r\n", i);
  const Row rows[] = {
      {"length and coding", post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "no HTTP/1.1"},
      {"coding and length", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400,
       "no HTTP/1.1"},
      {"two lengths that differ", post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400, "no HTTP/1.1"},
      {"two lengths that agree", post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400,
       "content-length twice"},
      {"two lengths in one", post + "Content-Length: 3, 3\r\n\r\nabc", 400, "several lengths"},
      {"a length with a sign", post + "Content-Length: +3\r\n\r\nabc", 400, "no HTTP/1.1"},
      {"a negative length", post + "Content-Length: -3\r\n\r\nabc", 400, "no HTTP/1.1"},
      {"a length in hex", post + "Content-Length: 0x3\r\n\r\nabc", 400, "no HTTP/1.1"},
      {"a length beyond 64 bits", post + "Content-Length: 99999999999999999999\r\n\r\n", 400, "no HTTP/1.1"},
      {"another coding", post + "Transfer-Encoding: gzip\r\n\r\n", 400, "length is not clear"},
      {"another coding first", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, "length is not clear"},
      {"another coding last", post + "Transfer-Encoding: chunked, identity\r\n\r\n", 400, "length is not clear"},
      {"a coding that looks like one",
       post + "Transfer-Encoding: \x0b"
              "chunked\r\n\r\n0\r\n\r\n",
       400, ""},
      {"two codings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "no HTTP/1.1"},
      {"a coding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
       "length is not clear"},
      {"a space before the colon", post + "Content-Length : 3\r\n\r\nabc", 400, "no HTTP/1.1"},
      {"a line that ends early", "GET / HTTP/1.1\nHost: a\n\n\r\n\r\n", 505, ""},
      {"a field that ends early", get + "Host: a\nX: b\r\n\r\n", 400, "no HTTP/1.1"},
      {"a NUL in a field", get + std::string("Host: a\0b\r\n\r\n", 13), 400, "no HTTP/1.1"},
      {"no host", get + "\r\n", 400, "no field host"},
      {"two hosts", get + "Host: a\r\nHost: b\r\n\r\n", 400, "host twice"},
      {"two authorizations", get + "Host: a\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n", 400,
       "authorization twice"},
      {"no path", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400, "no path"},
      {"a connection for others", "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 400, "no path"},
      {"another version", "GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505, "HTTP/1.1 only"},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/1.1 only"},
      {"TLS", "\x16\x03\x01\x02\x01\x01\xfc\x03\x03", 400, "no HTTP/1.1"},
      {"a long line", "GET /" + std::string(2000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 431,
       "http_header_bytes_max = 1024"},
      {"a long field", get + "Host: " + std::string(2000, 'a') + "\r\n\r\n", 431, "http_header_bytes_max = 1024"},
      {"a long field without an end", get + "Host: " + std::string(2000, 'a'), 431, "http_header_bytes_max = 1024"},
      {"many fields", get + "Host: a\r\n" + many + "\r\n", 431, "http_headers_max = 10"},
      {"a large body", post + "Content-Length: 101\r\n\r\n", 413, "request_bytes_max = 100"},
      {"a large body in chunks", post + "Transfer-Encoding: chunked\r\n\r\n65\r\na", 413, "request_bytes_max = 100"},
      {"chunks that are large together",
       post + "Transfer-Encoding: chunked\r\n\r\n32\r\n" + std::string(50, 'a') + "\r\n33\r\n", 413,
       "request_bytes_max = 100"},
      {"a chunk of no size", post + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400, "no HTTP/1.1"},
      {"a chunk beyond 64 bits", post + "Transfer-Encoding: chunked\r\n\r\n10000000000000001\r\n", 400, "no HTTP/1.1"},
      {"a chunk longer than it says", post + "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n", 400,
       "no HTTP/1.1"},
      {"a chunk's line without an end", post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(2000, 'a'), 431,
       ""},
      {"trailers without an end", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nx: " + std::string(2000, 'a'), 431,
       ""},
      {"a length in the trailers", post + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 3\r\n\r\n", 400, ""},
  };
  for (const Row& row : rows) {
    for (const size_t piece : {row.bytes.size(), size_t{1}}) {
      INFO(row.what << ", pieces of " << piece);
      RequestParser parser(kBounds);
      Feed(parser, row.bytes, piece, true);
      REQUIRE(parser.refusal().has_value());
      CHECK(parser.refusal()->status == row.status);
      CHECK_THAT(parser.refusal()->message, Contains(row.reason));
      CHECK_FALSE(parser.is_done());
      // It stays refused, whatever comes.
      CHECK(parser.Take("GET / HTTP/1.1\r\nHost: a\r\n\r\n") == 0);
    }
  }
}

TEST_CASE("A field that is folded over two lines is read as one line, also where it says the length") {
  RequestParser parser(kBounds);
  Feed(parser, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 1000, false);
  REQUIRE(parser.is_done());
  CHECK(parser.request().body.view() == "a");
}

}  // namespace
}  // namespace sheaf
