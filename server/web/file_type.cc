#include "server/web/file_type.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sheaf {
namespace {

constexpr auto kTypes = std::to_array<std::pair<std::string_view, std::string_view>>({
    {".css", "text/css; charset=utf-8"},
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".json", "application/json"},
    {".mjs", "text/javascript; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".wasm", "application/wasm"},
});

}  // namespace

std::string_view FileType(std::string_view name) {
  const auto found =
      std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& row) { return name.ends_with(row.first); });
  return found == kTypes.end() ? "application/octet-stream" : found->second;
}

}  // namespace sheaf
