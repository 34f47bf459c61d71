// The index of available packages, as `apt-cache dumpavail` prints it: stanzas of "Field: value" lines, blank lines
// between them, values folded over lines that begin with a blank.
//
//   ASSIGN_OR_RETURN(std::string text, ReadPackageIndex("apt-cache dumpavail"));
//   for (const PackageStanza& stanza : ParsePackageIndex(text)) fmt::print("{}\n", stanza.package);
//
// Everything points into the text, which must outlive it. Nothing here depends on the locale. Thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

// What `command` prints. FAILED_PRECONDITION if the command is not there, fails or prints nothing; says what to install
// or run.
absl::StatusOr<std::string> ReadPackageIndex(const std::string& command = "apt-cache dumpavail");

// One package: the fields we use, raw. Empty where the stanza has none.
struct PackageStanza {
  std::string_view package;
  std::string_view maintainer;
  // The short description only: the first line.
  std::string_view description;
  std::string_view tags;
  // Values of Depends, Pre-Depends, Recommends and Suggests.
  std::vector<std::string_view> relations;
  // The whole stanza.
  std::string_view text;
};

// Stanzas that name a package, in the order of the text.
std::vector<PackageStanza> ParsePackageIndex(std::string_view text);

// Sorts by name and keeps each name once: of packages of the same name the one with the smallest text, so that the
// order of the index does not matter.
void SortUniquePackages(std::vector<PackageStanza>& packages);

// The names in a relation field: of each entry the first alternative, without version, architecture and profile. In
// order, with repeats: "libc6 (>= 2.34), exim4 | mail-transport-agent" gives libc6, exim4.
std::vector<std::string_view> RelationNames(std::string_view relation);

// The tags in a Tag field: "game::strategy, role::program".
std::vector<std::string_view> TagNames(std::string_view tags);

// The words of a text: lower-case runs of [a-z0-9+] that begin with a letter and have two characters or more. ASCII
// only: all other bytes separate.
std::vector<std::string> Words(std::string_view text);

}  // namespace sheaf
