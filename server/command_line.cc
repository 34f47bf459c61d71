#include "server/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "server/settings.h"

namespace sheaf {
namespace {

absl::Status UnknownArgument(const std::string& argument) {
  std::string key = argument.substr(0, argument.find('='));
  key.erase(0, key.find_first_not_of('-'));
  std::replace(key.begin(), key.end(), '-', '_');
  if (argument.starts_with("--") && !key.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("unknown option {}; the nearest known one is {}", argument, FindSetting(NearestKey(key))->flag()));
  }
  return absl::InvalidArgumentError(fmt::format("unexpected argument \"{}\"; see sheafd --help", argument));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(std::vector<std::string> arguments) {
  CommandLine result;
  CLI::App app("sheafd: the server of Sheaf, a task store for federated computation.", "sheafd");
  app.allow_extras();
  app.add_option("--config", result.config_file, "Configuration file (TOML); its keys are those below with _ for -.");
  app.add_flag("--print-config", result.print_config, "Print each setting, its value and where it came from, and end.");
  app.add_flag("--create-operator-token", result.create_operator_token,
               "Make a token of the role operator in the store, while no server runs on it; print it and end.");
  app.add_flag("--version", result.print_version, "Print the version and end.");
  std::map<std::string_view, std::optional<std::string>> values;
  for (const Setting& setting : Settings()) {
    const std::string help = setting.default_text.empty() ? std::string(setting.help)
                                                          : fmt::format("{} [{}]", setting.help, setting.default_text);
    const auto keep = [&value = values[setting.key]](const std::string& text) { value = text; };
    if (setting.is_switch) {
      app.add_flag_function(
          setting.flag(), [keep](int64_t count) { keep(count > 0 ? "true" : "false"); }, help);
    } else {
      app.add_option_function<std::string>(setting.flag(), keep, help);
    }
  }
  try {
    std::reverse(arguments.begin(), arguments.end());
    app.parse(std::move(arguments));
  } catch (const CLI::Success&) {
    result.help = app.help();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(fmt::format("{}; see sheafd --help", error.what()));
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) return UnknownArgument(extras.front());
  for (const auto& [key, value] : values) {
    if (value) result.values.emplace(key, *value);
  }
  return result;
}

}  // namespace sheaf
