// CommandWords: a command as a person types it, cut into words as a shell does, without being one.
//
//   ASSIGN_OR_RETURN(const std::vector<std::string> words, CommandWords("python3 'my model.py' -v"));
//   ASSIGN_OR_RETURN(const std::string program, FindExecutable(words[0], path));   // "/usr/bin/python3"
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

// Words end at blanks. A backslash takes the next character as it is; between single quotes all characters are; between
// double quotes all but a backslash before a double quote or a backslash. Nothing else means anything: no variables, no
// patterns, no pipes. INVALID_ARGUMENT if a quote is not closed or there is no word.
absl::StatusOr<std::vector<std::string>> CommandWords(std::string_view command);

// The file of a program: `word` itself if there is a slash in it, else the first of that name in `path`, folders with
// colons between them. NOT_FOUND if there is none; PERMISSION_DENIED if it may not be executed.
absl::StatusOr<std::string> FindExecutable(const std::string& word, std::string_view path);

}  // namespace sheaf
