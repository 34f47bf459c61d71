// Requests of HTTP/1.1, as they come over a connection: [size of the pieces][bytes].
//
// Laws: what comes in pieces is what comes whole; nothing is both refused and done; a request takes its own bytes, and
// those behind it are left alone; bounds hold.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/http/connect_protocol.h"
#include "server/http/request_parser.h"
#include "tests/fuzz/targets.h"

namespace sheaf::fuzz {
namespace {

constexpr RequestParser::Bounds kBounds = {.header_bytes_max = 1024, .headers_max = 20, .body_bytes_max = 4096};

// The outcome as text: it is compared.
std::string Parse(std::string_view bytes, size_t piece, bool uses_space) {
  RequestParser parser(kBounds);
  std::string waiting;
  size_t taken = 0;
  for (size_t at = 0; at < bytes.size() && !parser.is_done() && !parser.refusal(); at += piece) {
    std::string_view arrived = bytes.substr(at, piece);
    if (uses_space && waiting.empty()) {
      const std::span<char> space = parser.Space();
      const size_t direct = std::min(space.size(), arrived.size());
      if (direct > 0) {
        std::memcpy(space.data(), arrived.data(), direct);
        parser.Wrote(direct);
      }
      taken += direct;
      arrived.remove_prefix(direct);
    }
    waiting.append(arrived);
    for (size_t used = 1; used > 0 && !waiting.empty();) {
      used = parser.Take(waiting);
      SHEAF_CHECK(used <= waiting.size(), "it took more than there was");
      waiting.erase(0, used);
      taken += used;
    }
  }
  SHEAF_CHECK(!parser.is_done() || !parser.refusal(), "it is done and refused");
  if (parser.refusal()) {
    SHEAF_CHECK(parser.refusal()->status >= 400 && !parser.refusal()->message.empty(), "a refusal without a reason");
    return "refused";
  }
  if (!parser.is_done()) return "begun";
  HttpRequest& request = parser.request();
  SHEAF_CHECK(static_cast<int64_t>(request.body.size()) <= kBounds.body_bytes_max, "the body is too large");
  SHEAF_CHECK(static_cast<int64_t>(request.headers.size()) <= kBounds.headers_max, "there are too many fields");
  return fmt::format("{} {} {} {} {} {} {} {}", taken, static_cast<int>(request.method), request.path, request.query,
                     request.host, request.headers.size(), request.keeps_alive, request.body.view());
}

}  // namespace

void RunHttp(std::string_view input) {
  if (input.empty()) return;
  const size_t piece = static_cast<unsigned char>(input.front()) + size_t{1};
  const std::string_view bytes = input.substr(1);
  const std::string whole = Parse(bytes, std::max<size_t>(bytes.size(), 1), false);
  for (const bool uses_space : {false, true}) {
    const std::string pieces = Parse(bytes, piece, uses_space);
    // What is refused for one reason may be seen to be wrong before another is, or not yet.
    SHEAF_CHECK(pieces == whole || whole == "refused" || pieces == "refused", "in pieces: {}; whole: {}", pieces,
                whole);
    SHEAF_CHECK(!(whole == "refused" && pieces != "refused" && pieces != "begun"), "refused, but in pieces: {}",
                pieces);
    SHEAF_CHECK(!(pieces == "refused" && whole != "refused" && whole != "begun"), "refused in pieces, but whole: {}",
                whole);
  }
  // What is done with a request that was read.
  RequestParser parser(kBounds);
  size_t taken = 0;
  for (size_t used = 1; used > 0 && taken < bytes.size(); taken += used) used = parser.Take(bytes.substr(taken));
  if (!parser.is_done()) return;
  ConnectRequest call;
  if (const auto error = ReadConnectRequest(parser.request(), call)) {
    SHEAF_CHECK(!error->status.ok() && ErrorResponse(error->status).status >= 400, "an error that is none");
  }
}

}  // namespace sheaf::fuzz
