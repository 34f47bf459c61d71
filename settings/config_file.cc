#include "settings/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <optional>
#include <utility>

namespace sheaf {
namespace {

std::optional<std::string> ScalarText(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return fmt::format("{}", *number);
  if (const auto truth = node.value_exact<bool>()) return fmt::format("{}", *truth);
  return std::nullopt;
}

std::optional<std::vector<std::string>> ItemsOf(const Setting& setting, const toml::node& node) {
  std::vector<std::string> items;
  const auto add = [&items](const toml::node& item) {
    std::optional<std::string> text = ScalarText(item);
    if (!text) return false;
    items.push_back(*std::move(text));
    return true;
  };
  if (const toml::array* array = node.as_array(); array != nullptr && setting.is_list) {
    for (const toml::node& item : *array) {
      if (!add(item)) return std::nullopt;
    }
    return items;
  }
  if (!add(node)) return std::nullopt;
  return items;
}

}  // namespace

absl::StatusOr<GivenValues> ReadConfigFile(const std::string& path, std::span<const Setting> settings) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    return absl::InvalidArgumentError(line == 0
                                          ? fmt::format("cannot read the configuration file {}; check --config", path)
                                          : fmt::format("{}:{}: {}", path, line, error.description()));
  }
  GivenValues values;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto line = node.source().begin.line;
    const Setting* setting = FindSetting(settings, name);
    if (setting == nullptr) {
      const Setting* nearest = NearestSetting(settings, name);
      return absl::InvalidArgumentError(
          fmt::format("{}:{}: unknown setting {}; {}", path, line, name,
                      nearest == nullptr ? "--help lists all" : "the nearest known one is " + nearest->key));
    }
    std::optional<std::vector<std::string>> items = ItemsOf(*setting, node);
    if (!items) {
      return absl::InvalidArgumentError(fmt::format(
          "{}:{}: {} {}", path, line, name,
          setting->is_list ? "is not an array of texts" : "is neither text, a whole number, true nor false"));
    }
    values[name] = *std::move(items);
  }
  return values;
}

}  // namespace sheaf
