// The error of stored bytes that cannot be read: they are damaged, or of a version that this build does not know.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

// DATA_LOSS. `what` names the record, as in "the spec of round r-7k2m9q4x"; `why`, as in "it is no RoundSpec".
inline absl::Status Unreadable(std::string_view what, std::string_view why) {
  return absl::DataLossError(fmt::format(
      "{} cannot be read: {}; restore the store from a backup, or run the version that wrote it", what, why));
}

}  // namespace sheaf
