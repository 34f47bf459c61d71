// The command line of sheafd, before anything is made of it.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sheaf {

// What one source says of the settings, by key.
using SettingValues = std::map<std::string, std::string, std::less<>>;

struct CommandLine {
  SettingValues values;
  std::optional<std::string> config_file;
  bool print_config = false;
  bool print_version = false;
  bool create_operator_token = false;
  // Not empty if --help was said: the text.
  std::string help;
};

// `arguments` without the program's name. INVALID_ARGUMENT if an option is unknown, naming the nearest known one, or
// lacks its value.
absl::StatusOr<CommandLine> ParseCommandLine(std::vector<std::string> arguments);

}  // namespace sheaf
