// Manifest: the list of a backup's files with their SHA-256, as `sha256sum -c` reads it.
//
//   # sheaf backup, 2026-11-21T12:00:00Z, schema version 6
//   <SHA-256>  tasks.db
//   <SHA-256>  blobs/<digest>
//   # end: 2 files
//
// It is written last: a directory without one, or with one that has no end, is no backup.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

// The file that makes a directory a backup.
inline constexpr char kBackupManifestName[] = "MANIFEST";

struct Manifest {
  struct Entry {
    std::string digest;
    // Below the backup's directory.
    std::string path;
  };
  std::string time;
  int schema_version = 0;
  std::vector<Entry> entries;
};

std::string ToText(const Manifest& manifest);
// DATA_LOSS, naming `path`, if it is not a whole manifest.
absl::StatusOr<Manifest> ParseManifest(const std::string& text, const std::string& path);

}  // namespace sheaf
