#include "server/core/contributions/contribution_size.h"

#include <fmt/format.h>

namespace sheaf {

absl::Status CheckContributionSize(int64_t size_bytes, int64_t contribution_bytes_max) {
  if (size_bytes <= contribution_bytes_max) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("the contribution has {} bytes, over the round's contribution_bytes_max = {}; create the round with "
                  "a higher one, or send less",
                  size_bytes, contribution_bytes_max));
}

absl::Status CheckInlineSize(int64_t size_bytes, const Limits& limits) {
  if (size_bytes <= limits.inline_bytes_max) return absl::OkStatus();
  return limits.Refuse(&Limits::inline_bytes_max, fmt::format("the contribution has {} bytes, over", size_bytes));
}

}  // namespace sheaf
