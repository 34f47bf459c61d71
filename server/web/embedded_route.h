// EmbeddedRoute: a file of the binary as a row of HTTP's table: compressed where the client takes that, tagged, and
// kept by caches for good, but for pages, which are asked for again.
//
//   routes.push_back(EmbeddedRoute("/ui/app-5HEBALOM.js", file, "default-src 'none'; script-src 'self'"));
//
// `policy` is the content-security-policy (https://www.w3.org/TR/CSP3/). The file says nothing of the server that has
// it, and is answered to whoever asks. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "server/http/routes.h"
#include "server/web/embedded_file.h"

namespace sheaf {

// `file` and `policy` are constants.
Route EmbeddedRoute(std::string path, const EmbeddedFile& file, std::string_view policy);

}  // namespace sheaf
