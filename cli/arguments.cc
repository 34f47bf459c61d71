#include "cli/arguments.h"

#include <fmt/format.h>

#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"

namespace sheaf {
namespace {

absl::Status SetNumber(const std::string& text, NumberRange range, int64_t* value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return absl::InvalidArgumentError(fmt::format("'{}' is not a whole number", text));
  }
  if (number < range.min) return absl::InvalidArgumentError(fmt::format("{} is less than {}", number, range.min));
  if (number > range.max) return absl::InvalidArgumentError(fmt::format("{} is more than {}", number, range.max));
  *value = number;
  return absl::OkStatus();
}

absl::Status SetDuration(const std::string& text, std::optional<absl::Duration>* value) {
  absl::Duration duration;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size()) {
    duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &duration)) {
    return absl::InvalidArgumentError(fmt::format("'{}' is not a duration such as 30s, 5m or 1h30m", text));
  }
  if (duration <= absl::ZeroDuration()) return absl::InvalidArgumentError(fmt::format("'{}' is not positive", text));
  *value = duration;
  return absl::OkStatus();
}

absl::Status SetChoice(const std::string& text, const std::vector<std::string>& choices, std::string* value) {
  for (const std::string& choice : choices) {
    if (absl::EqualsIgnoreCase(choice, text)) {
      *value = choice;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(fmt::format("'{}' is none of {}", text, absl::StrJoin(choices, ", ")));
}

}  // namespace

Argument& Arguments::Add(Argument argument) { return all_.emplace_back(std::move(argument)); }

Argument& Arguments::Positional(const std::string& name, std::string help, std::string* value) {
  return Add({.names = name,
              .value_name = name,
              .help = std::move(help),
              .is_positional = true,
              .is_required = true,
              .set = [value](const std::string& text) {
                *value = text;
                return absl::OkStatus();
              }});
}

Argument& Arguments::Flag(std::string names, std::string help, bool* value) {
  return Add({.names = std::move(names), .help = std::move(help), .set = [value](const std::string& text) {
                // A variable of the environment says it in words.
                if (!text.empty() && text != "true" && text != "false") {
                  return absl::InvalidArgumentError(fmt::format("'{}' is neither true nor false", text));
                }
                *value = text != "false";
                return absl::OkStatus();
              }});
}

Argument& Arguments::Text(std::string names, std::string value_name, std::string help, std::string* value) {
  return Add({.names = std::move(names),
              .value_name = std::move(value_name),
              .help = std::move(help),
              .default_text = *value,
              .set = [value](const std::string& text) {
                *value = text;
                return absl::OkStatus();
              }});
}

Argument& Arguments::Texts(std::string names, std::string value_name, std::string help,
                           std::vector<std::string>* values) {
  return Add({.names = std::move(names),
              .value_name = std::move(value_name),
              .help = std::move(help),
              .is_repeatable = true,
              .set = [values](const std::string& text) {
                values->push_back(text);
                return absl::OkStatus();
              }});
}

Argument& Arguments::Number(std::string names, std::string value_name, std::string help, NumberRange range,
                            int64_t* value) {
  return Add({.names = std::move(names),
              .value_name = std::move(value_name),
              .help = std::move(help),
              .default_text = fmt::format("{}", *value),
              .set = [range, value](const std::string& text) { return SetNumber(text, range, value); }});
}

Argument& Arguments::Duration(std::string names, std::string help, std::optional<absl::Duration>* value) {
  return Add({.names = std::move(names),
              .value_name = "DURATION",
              .help = std::move(help),
              .set = [value](const std::string& text) { return SetDuration(text, value); }});
}

Argument& Arguments::Choice(std::string names, std::string help, const std::vector<std::string>& choices,
                            std::string* value) {
  return Add({.names = std::move(names),
              .value_name = absl::StrJoin(choices, "|"),
              .help = std::move(help),
              .default_text = *value,
              .set = [choices, value](const std::string& text) { return SetChoice(text, choices, value); }});
}

Argument& Arguments::Choices(std::string names, std::string value_name, std::string help,
                             const std::vector<std::string>& choices, std::vector<std::string>* values) {
  std::string listed = fmt::format("{}: {}; may be repeated", help, absl::StrJoin(choices, ", "));
  return Add({.names = std::move(names),
              .value_name = std::move(value_name),
              .help = std::move(listed),
              .is_repeatable = true,
              .set = [choices, values](const std::string& text) {
                return SetChoice(text, choices, &values->emplace_back());
              }});
}

}  // namespace sheaf
