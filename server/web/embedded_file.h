// EmbeddedFile: a file that is built in web/, as the binary has it. cmake/embed_files.cmake makes the table.
//
//   for (const EmbeddedFile& file : DashboardFiles()) LogInfo("{}: {} bytes", file.name, file.plain.size());
//
// Constants: thread-safe.
#pragma once

#include <span>
#include <string_view>

namespace sheaf {

struct EmbeddedFile {
  // "index.html"
  std::string_view name;
  // The beginning of the SHA-256 of its bytes, in hex.
  std::string_view digest;
  std::string_view plain;
  // The same bytes, compressed by gzip.
  std::string_view gzip;
};

// Each in the order of their names: of web/built, and of web/join/built.
std::span<const EmbeddedFile> DashboardFiles();
std::span<const EmbeddedFile> JoinPageFiles();

}  // namespace sheaf
