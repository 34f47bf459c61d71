// FileType: what a file is, by its name, as the field `content-type` says it.
//
//   FileType("app-5HEBALOM.js")      // "text/javascript; charset=utf-8"
//
// A function of values: thread-safe.
#pragma once

#include <string_view>

namespace sheaf {

// Of names that say nothing: "application/octet-stream".
std::string_view FileType(std::string_view name);

}  // namespace sheaf
