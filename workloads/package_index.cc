#include "workloads/package_index.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/status/status.h"

namespace sheaf {
namespace {

constexpr char kRemedy[] = "run `sudo apt-get update`, then try again";

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::string_view Strip(std::string_view text) {
  while (!text.empty() && IsBlank(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
  return text;
}

// Cuts `text` at every comma and calls `take` with each stripped piece that is not empty.
template <typename Take>
void ForEachEntry(std::string_view text, Take take) {
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view entry = Strip(text.substr(0, comma));
    if (!entry.empty()) take(entry);
    if (comma == std::string_view::npos) return;
    text.remove_prefix(comma + 1);
  }
}

void TakeField(std::string_view name, std::string_view value, PackageStanza& stanza) {
  if (name == "Package") {
    stanza.package = Strip(value);
  } else if (name == "Maintainer") {
    stanza.maintainer = Strip(value);
  } else if (name == "Description" || name == "Description-en") {
    stanza.description = Strip(value.substr(0, value.find('\n')));
  } else if (name == "Tag") {
    stanza.tags = Strip(value);
  } else if (name == "Depends" || name == "Pre-Depends" || name == "Recommends" || name == "Suggests") {
    stanza.relations.push_back(value);
  }
}

// End of the line that begins at `begin`, its newline left out.
size_t LineEnd(std::string_view text, size_t begin) {
  const size_t end = text.find('\n', begin);
  return end == std::string_view::npos ? text.size() : end;
}

PackageStanza ParseStanza(std::string_view text) {
  PackageStanza stanza;
  stanza.text = text;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = LineEnd(text, begin);
    while (end + 1 < text.size() && (text[end + 1] == ' ' || text[end + 1] == '\t')) end = LineEnd(text, end + 1);
    const std::string_view field = text.substr(begin, end - begin);
    const size_t colon = field.find(':');
    if (colon != std::string_view::npos) TakeField(field.substr(0, colon), field.substr(colon + 1), stanza);
    begin = end + 1;
  }
  return stanza;
}

}  // namespace

absl::StatusOr<std::string> ReadPackageIndex(const std::string& command) {
  // What the command complains of is said better below.
  const std::string line = fmt::format("({}) 2>/dev/null", command);
  std::FILE* pipe = ::popen(line.c_str(), "re");
  if (pipe == nullptr) return absl::InternalError(fmt::format("cannot start a shell to run `{}`", command));
  std::string output;
  const std::unique_ptr<char[]> buffer(new char[1 << 18]);
  while (const size_t n = std::fread(buffer.get(), 1, 1 << 18, pipe)) output.append(buffer.get(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
    return absl::FailedPreconditionError(fmt::format(
        "`{}` cannot be run: this workload reads the package index of Debian and its derivatives, and the command was "
        "not found; install the package `apt`, or run it on such a machine",
        command));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::FailedPreconditionError(fmt::format("`{}` failed; {}", command, kRemedy));
  }
  if (output.empty()) {
    return absl::FailedPreconditionError(
        fmt::format("`{}` printed nothing, so this machine's package lists are empty; {}", command, kRemedy));
  }
  return output;
}

std::vector<PackageStanza> ParsePackageIndex(std::string_view text) {
  std::vector<PackageStanza> stanzas;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find("\n\n", begin), text.size());
    PackageStanza stanza = ParseStanza(text.substr(begin, end - begin));
    if (!stanza.package.empty()) stanzas.push_back(std::move(stanza));
    begin = end + 2;
  }
  return stanzas;
}

void SortUniquePackages(std::vector<PackageStanza>& packages) {
  std::sort(packages.begin(), packages.end(), [](const PackageStanza& a, const PackageStanza& b) {
    return std::pair(a.package, a.text) < std::pair(b.package, b.text);
  });
  const auto same_name = [](const PackageStanza& a, const PackageStanza& b) { return a.package == b.package; };
  packages.erase(std::unique(packages.begin(), packages.end(), same_name), packages.end());
}

std::vector<std::string_view> RelationNames(std::string_view relation) {
  std::vector<std::string_view> names;
  ForEachEntry(relation, [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find_first_of(" \t\n\r|(:[<"));
    if (!name.empty()) names.push_back(name);
  });
  return names;
}

std::vector<std::string_view> TagNames(std::string_view tags) {
  std::vector<std::string_view> names;
  ForEachEntry(tags, [&](std::string_view entry) { names.push_back(entry); });
  return names;
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (word.size() >= 2) words.push_back(word);
    word.clear();
  };
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool is_letter = c >= 'a' && c <= 'z';
    if (is_letter || (!word.empty() && ((c >= '0' && c <= '9') || c == '+'))) {
      word.push_back(c);
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

}  // namespace sheaf
