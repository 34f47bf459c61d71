#include "storage/directory/manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <sstream>

#include "base/checksum.h"

namespace sheaf {
namespace {

constexpr std::string_view kHead = "# sheaf backup, ";
constexpr std::string_view kVersion = ", schema version ";
constexpr size_t kDigestCharacters = 64;

std::string EndOf(const Manifest& manifest) { return fmt::format("# end: {} files", manifest.entries.size()); }

// Below the directory, whatever the text says.
bool IsInside(const std::string& path) {
  return !path.empty() && path.front() != '/' && path.find("..") == std::string::npos;
}

}  // namespace

std::string ToText(const Manifest& manifest) {
  std::string text = fmt::format("{}{}{}{}\n", kHead, manifest.time, kVersion, manifest.schema_version);
  for (const Manifest::Entry& entry : manifest.entries) text += fmt::format("{}  {}\n", entry.digest, entry.path);
  return text + EndOf(manifest) + "\n";
}

absl::StatusOr<Manifest> ParseManifest(const std::string& text, const std::string& path) {
  const absl::Status damaged =
      absl::DataLossError(fmt::format("{} is not the whole manifest of a backup; use another backup", path));
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line.rfind(kHead, 0) != 0) return damaged;
  const size_t version = line.find(kVersion);
  if (version == std::string::npos) return damaged;
  Manifest manifest{.time = line.substr(kHead.size(), version - kHead.size())};
  const char* number = line.data() + version + kVersion.size();
  if (std::from_chars(number, line.data() + line.size(), manifest.schema_version).ec != std::errc()) return damaged;
  while (std::getline(lines, line)) {
    if (line == EndOf(manifest)) return manifest;
    const std::string digest = line.substr(0, kDigestCharacters);
    if (!IsSha256Hex(digest) || line.compare(kDigestCharacters, 2, "  ") != 0) return damaged;
    Manifest::Entry entry{.digest = digest, .path = line.substr(kDigestCharacters + 2)};
    if (!IsInside(entry.path)) return damaged;
    manifest.entries.push_back(std::move(entry));
  }
  return damaged;
}

}  // namespace sheaf
