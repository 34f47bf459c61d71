#include "server/core/requests/paging.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/core/limits/fixed_limits.h"

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
  if (!request_id.empty() && request_id.size() <= kRequestIdCharactersMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("request_id must have 1 to {} characters; choose one at random and keep it across retries",
                  kRequestIdCharactersMax));
}

}  // namespace sheaf
