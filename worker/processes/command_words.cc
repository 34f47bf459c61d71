#include "worker/processes/command_words.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <optional>
#include <utility>

namespace sheaf {

absl::StatusOr<std::vector<std::string>> CommandWords(std::string_view command) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    const bool is_last = i + 1 == command.size();
    const bool escapes =
        c == '\\' && quote != '\'' && !is_last && (quote == 0 || command[i + 1] == '"' || command[i + 1] == '\\');
    if (escapes) {
      word = word.value_or("") + command[++i];
    } else if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      word = word.value_or("");
    } else if (quote == 0 && std::isspace(static_cast<unsigned char>(c))) {
      if (word.has_value()) words.push_back(*std::exchange(word, std::nullopt));
    } else {
      word = word.value_or("") + c;
    }
  }
  if (quote != 0) {
    return absl::InvalidArgumentError(fmt::format("the quote {} in the command {} is not closed", quote, command));
  }
  if (word.has_value()) words.push_back(*std::move(word));
  if (words.empty()) return absl::InvalidArgumentError("there is no command");
  return words;
}

absl::StatusOr<std::string> FindExecutable(const std::string& word, std::string_view path) {
  std::vector<std::string> candidates;
  if (word.find('/') != std::string::npos) {
    candidates.push_back(word);
  } else {
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find(':', begin), path.size());
      if (end > begin) candidates.push_back(fmt::format("{}/{}", path.substr(begin, end - begin), word));
      begin = end + 1;
    }
  }
  std::string found;
  for (const std::string& candidate : candidates) {
    struct stat status = {};
    if (stat(candidate.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    // Wherever it starts.
    if (access(candidate.c_str(), X_OK) == 0) return std::filesystem::absolute(candidate).string();
    found = candidate;
  }
  if (!found.empty()) {
    return absl::PermissionDeniedError(fmt::format("{} may not be executed: chmod +x {}", found, found));
  }
  return absl::NotFoundError(candidates.size() == 1 && candidates.front() == word
                                 ? fmt::format("there is no file {}", word)
                                 : fmt::format("there is no executable {} on the PATH {}", word, path));
}

}  // namespace sheaf
