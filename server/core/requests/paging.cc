#include "server/core/requests/paging.h"

#include <fmt/format.h>

#include <algorithm>

namespace sheaf {

absl::StatusOr<int> PageSize(int32_t page_size, int64_t limit) {
  if (page_size < 0)
    return absl::InvalidArgumentError(fmt::format("page_size is {}; it must not be negative", page_size));
  return static_cast<int>(std::min<int64_t>(page_size == 0 ? 100 : page_size, limit));
}

absl::Status BadPageToken(std::string_view token) {
  return absl::InvalidArgumentError(fmt::format(
      "page_token \"{}\" is not one that this server gave; start from the first page", token.substr(0, 80)));
}

absl::Status CheckRequestId(std::string_view request_id) {
  if (!request_id.empty() && request_id.size() <= 64) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "request_id must have 1 to 64 characters; choose one at random and keep it across retries");
}

}  // namespace sheaf
