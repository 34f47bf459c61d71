// What a request says of the form in which it wants an answer, or that it has it already. Functions of values:
// thread-safe.
//
//   if (NamesTag(request.Header("if-none-match"), etag)) exchange->Answer({.status = 304, .headers = fields});
//   const bool compressed = AcceptsGzip(request.Header("accept-encoding"));
#pragma once

#include <string_view>

namespace sheaf {

// Whether a list as in the fields `if-none-match` and `if-match` has `etag` (quoted: "\"1f3a\""), or says "*".
// Tags are compared weakly, as RFC 9110 has it for `if-none-match`: what is in them counts, W/ or not.
bool NamesTag(std::string_view list, std::string_view etag);

// Whether the field `accept-encoding` takes gzip. Empty: no, because whoever does not say so may not be able to.
bool AcceptsGzip(std::string_view accept_encoding);

}  // namespace sheaf
