#include "settings/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

namespace sheaf {
namespace {

// "--insecure" becomes "--insecure=true", unless "true" or "false" follows: then all settings are options with a value.
void CompleteSwitches(std::span<const Setting> settings, std::vector<std::string>& arguments) {
  for (const Setting& setting : settings) {
    if (!setting.is_switch) continue;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool has_value = i + 1 < arguments.size() && (arguments[i + 1] == "true" || arguments[i + 1] == "false");
      if (arguments[i] == setting.flag() && !has_value) arguments[i] += "=true";
    }
  }
}

absl::Status UnknownArgument(const CommandSyntax& syntax, const std::string& argument) {
  std::string key = argument.substr(0, argument.find('='));
  if (!key.starts_with("--") || key.size() == 2) {
    return absl::InvalidArgumentError(
        fmt::format("unexpected argument \"{}\"; see {} --help", argument, syntax.program));
  }
  key.erase(0, 2);
  std::replace(key.begin(), key.end(), '-', '_');
  const Setting* nearest = NearestSetting(syntax.settings, key);
  return absl::InvalidArgumentError(
      nearest == nullptr ? fmt::format("unknown option {}; see {} --help", argument, syntax.program)
                         : fmt::format("unknown option {}; the nearest known one is {}", argument, nearest->flag()));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const CommandSyntax& syntax, std::vector<std::string> arguments) {
  CommandLine line;
  CompleteSwitches(syntax.settings, arguments);
  CLI::App app(fmt::format("{}: {}", syntax.program, syntax.summary), std::string(syntax.program));
  app.allow_extras();
  app.add_option("--config", line.config_file, "Configuration file (TOML); its keys are those below with _ for -.");
  for (const ActionFlag& action : syntax.actions) app.add_flag(action.flag, *action.is_wanted, action.help);
  for (const Setting& setting : syntax.settings) {
    const std::string help =
        setting.default_text.empty() ? setting.help : fmt::format("{} [{}]", setting.help, setting.default_text);
    CLI::Option* option = app.add_option(setting.flag(), line.values[setting.key], help);
    option->type_size(1)->expected(1)->multi_option_policy(setting.is_list ? CLI::MultiOptionPolicy::TakeAll
                                                                           : CLI::MultiOptionPolicy::TakeLast);
    if (setting.is_switch) option->type_name("");
  }
  // The library reads neither the environment nor a file for us: its order of the two is not ours.
  try {
    std::reverse(arguments.begin(), arguments.end());
    app.parse(std::move(arguments));
  } catch (const CLI::Success&) {
    line.help = app.help();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(fmt::format("{}; see {} --help", error.what(), syntax.program));
  }
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) {
    return UnknownArgument(syntax, extras.front());
  }
  std::erase_if(line.values, [](const auto& entry) { return entry.second.empty(); });
  return line;
}

}  // namespace sheaf
