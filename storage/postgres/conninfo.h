// What people may give as the connection string of a store, on a command line or in a file of settings.
//
//   if (IsConninfo(text)) RETURN_IF_ERROR(CheckHasNoPassword(text));
//
// Both look at the text alone, and quote nothing of it.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// A URL of PostgreSQL, or libpq's "key=value ...".
bool IsConninfo(std::string_view text);

// INVALID_ARGUMENT if it has a password: it would be seen by whoever lists processes, or prints the configuration.
absl::Status CheckHasNoPassword(std::string_view conninfo);

}  // namespace sheaf
