#include "settings/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "settings/config_file.h"

namespace sheaf {
namespace {

// What the most important source that names a setting says of it.
struct Given {
  std::vector<std::string> items;
  // "flag --data-dir"
  std::string origin;
};

struct Sources {
  const GivenValues& flags;
  const Environment& environment;
  const GivenValues& file;
  const std::string& file_path;
};

// Between commas; what is empty is none.
std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> items;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

Given Find(const Setting& setting, const Sources& sources) {
  if (const auto flag = sources.flags.find(setting.key); flag != sources.flags.end()) {
    return {flag->second, fmt::format("flag {}", setting.flag())};
  }
  // An empty variable is one that is not set: whoever writes `SHEAF_X=` into a unit's file wants the default.
  if (const std::optional<std::string> text = sources.environment(setting.variable()); text && !text->empty()) {
    return {setting.is_list ? SplitAtCommas(*text) : std::vector{*text}, fmt::format("env {}", setting.variable())};
  }
  if (const auto key = sources.file.find(setting.key); key != sources.file.end()) {
    return {key->second, fmt::format("file {}", sources.file_path)};
  }
  if (setting.default_text.empty()) return {{}, "default"};
  return {{setting.default_text}, "default"};
}

absl::Status Set(const Setting& setting, const Given& given) {
  for (const std::string& item : given.items) {
    // Said to be nothing: that is what it is without a default, too.
    if (item.empty() && setting.default_text.empty() && !setting.is_list) continue;
    const absl::Status status = item.empty() ? absl::InvalidArgumentError("it is empty") : setting.set(item);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}: {} (from {})", setting.key, std::string(status.message()), given.origin));
    }
  }
  return absl::OkStatus();
}

struct Row {
  std::string key, value, origin;
};

std::string Table(const std::vector<Row>& rows) {
  size_t key_width = 0;
  size_t value_width = 0;
  for (const Row& row : rows) {
    key_width = std::max(key_width, row.key.size());
    value_width = std::max(value_width, row.value.size());
  }
  std::string text;
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}  {:<{}}  {}\n", row.key, key_width, row.value, value_width, row.origin);
  }
  return text;
}

absl::Status NoChoice(const std::string& text, const std::vector<std::string>& choices) {
  const auto last = choices.end() - 1;
  return absl::InvalidArgumentError(
      fmt::format("there is no \"{}\"; choose {} or {}", text, absl::StrJoin(choices.begin(), last, ", "), *last));
}

// What `parse` makes of a text goes to `value`.
template <typename T, typename Parse>
SetValue Into(T* value, Parse parse) {
  return [value, parse = std::move(parse)](const std::string& text) {
    const auto parsed = parse(text);
    if (parsed.ok()) *value = *parsed;
    return parsed.status();
  };
}

}  // namespace

Environment ProcessEnvironment() {
  return [](const std::string& variable) -> std::optional<std::string> {
    const char* value = std::getenv(variable.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

Settings::Settings(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}

absl::StatusOr<std::string> Settings::Read(const std::vector<std::string>& arguments, const Environment& environment,
                                           const std::function<absl::Status()>& check) const {
  bool print_config = false;
  bool print_version = false;
  std::vector<ActionFlag> actions = {
      {"--print-config", "Print each setting, its value and where it came from, and end.", &print_config}};
  actions.insert(actions.end(), actions_.begin(), actions_.end());
  actions.push_back({"--version", "Print the version and end.", &print_version});
  ASSIGN_OR_RETURN(
      const CommandLine line,
      ParseCommandLine({.program = program_, .summary = summary_, .actions = actions, .settings = all_}, arguments));
  if (!line.help.empty()) return line.help;
  if (print_version) return VersionLine(program_);

  const std::string path = line.config_file.value_or(environment("SHEAF_CONFIG").value_or(""));
  GivenValues file;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(file, ReadConfigFile(path, all_));
  }
  std::vector<Row> rows = {{"SETTING", "VALUE", "FROM"}};
  for (const Setting& setting : all_) {
    const Given given =
        Find(setting, {.flags = line.values, .environment = environment, .file = file, .file_path = path});
    RETURN_IF_ERROR(Set(setting, given));
    const std::string value = absl::StrJoin(given.items, ",");
    rows.push_back({setting.key, value.empty() ? "-" : value, given.origin});
  }
  RETURN_IF_ERROR(check());
  return print_config ? Table(rows) : "";
}

void Settings::Text(std::string key, std::string default_text, std::string help, std::string* value) {
  Custom(std::move(key), std::move(default_text), std::move(help), [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  });
}

void Settings::Choice(std::string key, std::string default_text, std::string help, std::vector<std::string> choices,
                      std::string* value) {
  Custom(std::move(key), std::move(default_text), std::move(help),
         [choices = std::move(choices), value](const std::string& text) {
           if (std::find(choices.begin(), choices.end(), text) == choices.end()) return NoChoice(text, choices);
           *value = text;
           return absl::OkStatus();
         });
}

void Settings::Level(std::string key, std::string default_text, std::string help, LogLevel* value) {
  Custom(std::move(key), std::move(default_text), std::move(help), [value](const std::string& text) {
    return ParseLogLevel(text, value) ? absl::OkStatus() : NoChoice(text, {"debug", "info", "warning", "error", "off"});
  });
}

void Settings::Switch(std::string key, std::string help, bool* value) {
  Custom(std::move(key), "false", std::move(help), Into(value, ParseTruth));
  all_.back().is_switch = true;
}

void Settings::Bytes(std::string key, std::string default_text, std::string help, int64_t* value) {
  const auto parse = [example = default_text](const std::string& text) { return ParseBytes(text, example); };
  Custom(std::move(key), std::move(default_text), std::move(help), Into(value, parse));
}

void Settings::Megabytes(std::string key, std::string default_text, std::string help, NumberBounds bounds,
                         int64_t* bytes) {
  const auto parse = [bounds](const std::string& text) -> absl::StatusOr<int64_t> {
    ASSIGN_OR_RETURN(const int64_t number, ParseNumber(text, bounds));
    return number << 20;
  };
  Custom(std::move(key), std::move(default_text), std::move(help), Into(bytes, parse));
}

void Settings::Duration(std::string key, std::string default_text, std::string help, DurationBounds bounds,
                        absl::Duration* value) {
  const auto parse = [bounds, example = default_text](const std::string& text) {
    return ParseDuration(text, bounds, example);
  };
  Custom(std::move(key), std::move(default_text), std::move(help), Into(value, parse));
}

void Settings::List(std::string key, std::string help, SetValue add) {
  Custom(std::move(key), "", std::move(help), std::move(add));
  all_.back().is_list = true;
}

void Settings::Custom(std::string key, std::string default_text, std::string help, SetValue set) {
  all_.push_back(
      {.key = std::move(key), .default_text = std::move(default_text), .help = std::move(help), .set = std::move(set)});
}

void Settings::Action(std::string flag, std::string help, bool* is_wanted) {
  actions_.push_back({.flag = std::move(flag), .help = std::move(help), .is_wanted = is_wanted});
}

}  // namespace sheaf
