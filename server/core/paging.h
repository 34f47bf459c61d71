// Paging: page sizes and tokens of the lists. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sheaf {

// `page_size`, or 100 where it is 0, at most `limit`. INVALID_ARGUMENT if it is negative.
absl::StatusOr<int> PageSize(int32_t page_size, int64_t limit);

// INVALID_ARGUMENT naming the token.
absl::Status BadPageToken(std::string_view token);

// A request_id must have 1 to 64 characters. INVALID_ARGUMENT.
absl::Status CheckRequestId(std::string_view request_id);

}  // namespace sheaf
