#include "settings/setting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/nearest.h"

namespace sheaf {

std::string Setting::flag() const {
  std::string name = fmt::format("--{}", key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Setting::variable() const {
  std::string name = fmt::format("SHEAF_{}", key);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

const Setting* FindSetting(std::span<const Setting> settings, std::string_view key) {
  const auto found =
      std::find_if(settings.begin(), settings.end(), [key](const Setting& setting) { return setting.key == key; });
  return found == settings.end() ? nullptr : &*found;
}

const Setting* NearestSetting(std::span<const Setting> settings, std::string_view key) {
  std::vector<std::string> keys;
  keys.reserve(settings.size());
  for (const Setting& setting : settings) keys.push_back(setting.key);
  return FindSetting(settings, Nearest(key, keys));
}

}  // namespace sheaf
