// Setting: one row of a program's settings (settings.h): what it is called in each of its spellings, and where its
// value goes.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace sheaf {

// Stores one value. INVALID_ARGUMENT, with what would be right, if `text` is none.
using SetValue = std::function<absl::Status(const std::string& text)>;

struct Setting {
  // "data_dir", the key in a configuration file; the other spellings are made of it.
  std::string key;
  // Read as if somebody had said it; empty if there is no default.
  std::string default_text;
  // One sentence, without the default.
  std::string help;
  // The flag alone, without a value, means "true".
  bool is_switch = false;
  // It has any number of values: its flag is repeated, its variable has commas between them, its key has an array.
  bool is_list = false;
  SetValue set;

  // "--data-dir" and "SHEAF_DATA_DIR".
  std::string flag() const;
  std::string variable() const;
};

// What one source says of the settings, by key.
using GivenValues = std::map<std::string, std::vector<std::string>, std::less<>>;

// Null if there is none.
const Setting* FindSetting(std::span<const Setting> settings, std::string_view key);

// What somebody who mistyped `key` probably meant; null if nothing is near.
const Setting* NearestSetting(std::span<const Setting> settings, std::string_view key);

}  // namespace sheaf
