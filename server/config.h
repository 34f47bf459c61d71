// ParseInvocation: what sheafd was told to do. A setting (settings.h) is taken from the first of these that names it:
// the flag (--data-dir), the environment (SHEAF_DATA_DIR), the file of --config or SHEAF_CONFIG (data_dir = "..." in
// TOML), the default. An empty variable is one that is not set.
//
//   ASSIGN_OR_RETURN(Invocation invocation, ParseInvocation({"--listen", "127.0.0.1:0"}, ProcessEnvironment()));
//   if (!invocation.output.empty()) ...                 // --help, --version or --print-config: print it and end.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/settings.h"

namespace sheaf {

// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& variable)>;

Environment ProcessEnvironment();

struct Invocation {
  Config config;
  // Make a token, print it and end well; no server may run on the store.
  bool create_operator_token = false;
  // If not empty, print this and end well.
  std::string output;
};

// `arguments` without the program's name. INVALID_ARGUMENT, naming the setting and where it came from, if anything is
// unknown or makes no sense.
absl::StatusOr<Invocation> ParseInvocation(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace sheaf
