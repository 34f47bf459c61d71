// FilePart: what of a file the answer to a GET or HEAD has, by the fields if-match, if-none-match, range and if-range
// (RFC 9110, sections 13 and 14).
//
//   const FilePart part = PartOf(request, "\"5891b5b5...\"", 1 << 20);   // range: bytes=0-7
//   // part.status == 206, part.offset == 0, part.length == 8
//
// One range at most: who asks for several gets the whole file, as the standard allows. Values and functions of them:
// thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "server/http/http_message.h"

namespace sheaf {

struct FilePart {
  // 200 and 206: has bytes; 304: the client has the file already; 412: it is not the file that was meant; 416: it has
  // no such bytes.
  int status = 200;
  int64_t offset = 0;
  int64_t length = 0;
};

// `etag` with its quotes, and strong. O(the fields' bytes).
FilePart PartOf(const HttpRequest& request, std::string_view etag, int64_t size_bytes);

}  // namespace sheaf
