// The command line of a program, before anything is made of it.
//
//   ASSIGN_OR_RETURN(const CommandLine line, ParseCommandLine(syntax, {"--data-dir", "/srv", "--print-config"}));
//   const std::vector<std::string>& said = line.values.at("data_dir");   // {"/srv"}
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "settings/setting.h"

namespace sheaf {

// A flag that has the program do something else than run: no setting, and without a value.
struct ActionFlag {
  // "--print-config"
  std::string flag;
  std::string help;
  bool* is_wanted = nullptr;
};

struct CommandSyntax {
  std::string_view program;
  std::string_view summary;
  std::span<const ActionFlag> actions;
  std::span<const Setting> settings;
};

struct CommandLine {
  GivenValues values;
  // Of --config.
  std::optional<std::string> config_file;
  // Not empty if --help was said: the text.
  std::string help;
};

// `arguments` without the program's name. Sets what the actions point to. INVALID_ARGUMENT if an option is unknown,
// naming the nearest known one, or lacks its value.
absl::StatusOr<CommandLine> ParseCommandLine(const CommandSyntax& syntax, std::vector<std::string> arguments);

}  // namespace sheaf
