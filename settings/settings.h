// Settings: every knob of a program, one row each. A row says the name, the default, what it is for, which values there
// are, and the variable that gets them. Its flag, its variable in the environment, its key in the configuration file,
// its lines in --help and --print-config and its errors are made of that.
//
//   std::string data_dir;
//   int64_t cache_bytes = 0;
//   bool is_quiet = false;
//   Settings settings("storekeeper", "keeps a store.");
//   settings.Text("data_dir", "data", "Directory of the store.", &data_dir);
//   settings.Bytes("cache_bytes", "64MiB", "Memory for what was read last.", &cache_bytes);
//   settings.Switch("quiet", "Log nothing.", &is_quiet);
//   ASSIGN_OR_RETURN(const std::string output, settings.Read(arguments, ProcessEnvironment()));
//   if (!output.empty()) fmt::print("{}", output);   // Of --help, --version or --print-config.
//
// A setting is taken from the first of these that names it: the flag (--data-dir), the environment (SHEAF_DATA_DIR),
// the file of --config or SHEAF_CONFIG (data_dir = "..." in TOML), the default. A variable of the environment that is
// empty is one that is not set. Of a flag that is repeated the last counts, or each if it is a list.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/log.h"
#include "settings/command_line.h"
#include "settings/setting.h"
#include "settings/values.h"

namespace sheaf {

// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& variable)>;

Environment ProcessEnvironment();

// The bound variables must outlive Read. Not thread-safe.
class Settings {
 public:
  // --help begins with "<program>: <summary>".
  Settings(std::string program, std::string summary);

  // One row each. The default is read as if somebody had said it; without one the variable keeps the value it has.
  void Text(std::string key, std::string default_text, std::string help, std::string* value);
  void Choice(std::string key, std::string default_text, std::string help, std::vector<std::string> choices,
              std::string* value);
  void Level(std::string key, std::string default_text, std::string help, LogLevel* value);
  // False unless it is said; the flag alone says so.
  void Switch(std::string key, std::string help, bool* value);
  template <std::integral T>
  void Number(std::string key, std::string default_text, std::string help, NumberBounds bounds, T* value) {
    Custom(std::move(key), std::move(default_text), std::move(help), [bounds, value](const std::string& text) {
      const absl::StatusOr<int64_t> number = ParseNumber(text, bounds);
      if (number.ok()) *value = static_cast<T>(*number);
      return number.status();
    });
  }
  void Bytes(std::string key, std::string default_text, std::string help, int64_t* value);
  // A number of MiB, said without a unit.
  void Megabytes(std::string key, std::string default_text, std::string help, NumberBounds bounds, int64_t* bytes);
  void Duration(std::string key, std::string default_text, std::string help, DurationBounds bounds,
                absl::Duration* value);
  // Any number of values: the flag is repeated, the variable has commas between them, the key an array. `add` takes
  // one.
  void List(std::string key, std::string help, SetValue add);
  void Custom(std::string key, std::string default_text, std::string help, SetValue set);

  // A flag that has the program do something else than run: no setting, and said on the command line alone.
  void Action(std::string flag, std::string help, bool* is_wanted);

  // Sets the variables. If the text is not empty, --help, --version or --print-config was said: print it and end well.
  // `check` looks at the values together; not for --help and --version. INVALID_ARGUMENT, naming the setting and where
  // it came from, if anything is unknown or makes no sense; the codes of `check`.
  absl::StatusOr<std::string> Read(
      const std::vector<std::string>& arguments, const Environment& environment,
      const std::function<absl::Status()>& check = [] { return absl::OkStatus(); }) const;

  std::span<const Setting> all() const { return all_; }

 private:
  std::string program_;
  std::string summary_;
  std::vector<Setting> all_;
  std::vector<ActionFlag> actions_;
};

}  // namespace sheaf
