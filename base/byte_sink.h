// ByteSink: takes bytes, piece by piece; an error stops who gives them.
//
//   absl::Status WriteReport(const ByteSink& take) {
//     RETURN_IF_ERROR(take(header));
//     return take(body);
//   }
#pragma once

#include <functional>
#include <string_view>

#include "absl/status/status.h"

namespace sheaf {

using ByteSink = std::function<absl::Status(std::string_view piece)>;

}  // namespace sheaf
