#include "worker/config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "base/version.h"

namespace sheaf {
namespace {

// What one source says, by key. An entry without items was given and is empty.
using Values = std::map<std::string, std::vector<std::string>, std::less<>>;

struct CommandLine {
  Values values;
  std::optional<std::string> config_file;
  bool print_version = false;
  std::string help;
};

// "--insecure" is "--insecure=true", unless "true" or "false" follows.
void CompleteSwitches(std::vector<std::string>& arguments) {
  for (const WorkerSetting& setting : WorkerSettings()) {
    if (!setting.is_switch()) continue;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool has_value = i + 1 < arguments.size() && (arguments[i + 1] == "true" || arguments[i + 1] == "false");
      if (arguments[i] == setting.flag() && !has_value) arguments[i] += "=true";
    }
  }
}

absl::StatusOr<CommandLine> ParseCommandLine(std::vector<std::string> arguments) {
  CommandLine result;
  CompleteSwitches(arguments);
  CLI::App app("sheaf-worker: pulls tasks from a Sheaf server and computes them on this machine's data.",
               "sheaf-worker");
  app.add_option("--config", result.config_file, "Configuration file (TOML); its keys are those below with _ for -.");
  app.add_flag("--version", result.print_version, "Print the version and end.");
  Values values;
  for (const WorkerSetting& setting : WorkerSettings()) {
    std::string help = std::string(setting.help);
    if (!setting.default_text.empty()) help += fmt::format(" [{}]", setting.default_text);
    CLI::Option* option = app.add_option(setting.flag(), values[std::string(setting.key)], help);
    option->type_size(1)->expected(1)->multi_option_policy(setting.is_list ? CLI::MultiOptionPolicy::TakeAll
                                                                           : CLI::MultiOptionPolicy::TakeLast);
  }
  try {
    std::reverse(arguments.begin(), arguments.end());
    app.parse(std::move(arguments));
  } catch (const CLI::Success&) {
    result.help = app.help();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(fmt::format("{}; see sheaf-worker --help", error.what()));
  }
  for (auto& [key, items] : values) {
    if (!items.empty()) result.values.emplace(key, std::move(items));
  }
  return result;
}

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

std::optional<std::string> ScalarText(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return fmt::format("{}", *number);
  if (const auto truth = node.value_exact<bool>()) return fmt::format("{}", *truth);
  return std::nullopt;
}

absl::StatusOr<std::vector<std::string>> ItemsOf(const WorkerSetting& setting, const toml::node& node) {
  std::vector<std::string> items;
  auto add = [&items](const toml::node& item) {
    std::optional<std::string> text = ScalarText(item);
    if (text.has_value()) items.push_back(*std::move(text));
    return text.has_value();
  };
  bool is_understood = true;
  if (const toml::array* array = node.as_array(); array != nullptr && setting.is_list) {
    for (const toml::node& item : *array) is_understood &= add(item);
  } else {
    is_understood = add(node);
  }
  if (is_understood) return items;
  return absl::InvalidArgumentError(setting.is_list ? "is not an array of texts"
                                                    : "is neither text, a whole number, true nor false");
}

absl::StatusOr<Values> ReadConfigFile(const std::string& path) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    auto line = error.source().begin.line;
    if (line == 0) {
      return absl::InvalidArgumentError(fmt::format("cannot read the configuration file {}; check --config", path));
    }
    return absl::InvalidArgumentError(fmt::format("{}:{}: {}", path, line, error.description()));
  }
  Values values;
  for (const auto& [key, node] : table) {
    std::string name(key.str());
    auto line = node.source().begin.line;
    const WorkerSetting* setting = FindWorkerSetting(name);
    if (setting == nullptr) {
      return absl::InvalidArgumentError(
          fmt::format("{}:{}: there is no setting {}; see sheaf-worker --help", path, line, name));
    }
    absl::StatusOr<std::vector<std::string>> items = ItemsOf(*setting, node);
    if (!items.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}:{}: {} {}", path, line, name, std::string(items.status().message())));
    }
    values[name] = *std::move(items);
  }
  return values;
}

// Applies what the most important source says of `setting`; `origin` names that source in errors.
absl::Status Apply(const WorkerSetting& setting, const std::vector<std::string>& items, const std::string& origin,
                   WorkerConfig& config) {
  for (const std::string& item : items) {
    absl::Status status = item.empty() ? absl::InvalidArgumentError("it is empty") : setting.apply(item, config);
    if (!status.ok()) {
      return absl::InvalidArgumentError(fmt::format("{}: {}", origin, std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerInvocation> ParseWorkerInvocation(
    const std::vector<std::string>& arguments,
    const std::function<std::optional<std::string>(const std::string& variable)>& environment) {
  WorkerInvocation invocation;
  ASSIGN_OR_RETURN(CommandLine line, ParseCommandLine(arguments));
  invocation.output = line.help;
  if (line.print_version) {
    invocation.output = VersionLine("sheaf-worker");
  }
  if (!invocation.output.empty()) return invocation;

  if (!line.config_file.has_value()) line.config_file = environment("SHEAF_CONFIG");
  Values file;
  // An empty one names none.
  if (line.config_file.has_value() && !line.config_file->empty()) {
    ASSIGN_OR_RETURN(file, ReadConfigFile(*line.config_file));
  }
  for (const WorkerSetting& setting : WorkerSettings()) {
    std::vector<std::string> items;
    std::string origin;
    if (auto flag = line.values.find(setting.key); flag != line.values.end()) {
      items = flag->second;
      origin = setting.flag();
    } else if (auto variable = environment(setting.variable()); variable.has_value() && !variable->empty()) {
      items = setting.is_list ? SplitAtCommas(*variable) : std::vector<std::string>{*variable};
      origin = setting.variable();
    } else if (auto key = file.find(setting.key); key != file.end()) {
      items = key->second;
      origin = fmt::format("{}: {}", *line.config_file, setting.key);
    } else if (!setting.default_text.empty()) {
      items = {std::string(setting.default_text)};
    }
    RETURN_IF_ERROR(Apply(setting, items, origin, invocation.config));
  }
  return invocation;
}

}  // namespace sheaf
