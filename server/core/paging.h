// Paging: page sizes and tokens of the lists. Pure.
//
//   PageRoom room(limits.page_bytes_max);
//   for (...) {
//     if (!room.Take(view)) { ... the next page begins here ... }
//   }
#pragma once

#include <google/protobuf/message_lite.h>

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

// Where a page ends although it has fewer items than were asked for. The first item always fits.
class PageRoom {
 public:
  explicit PageRoom(int64_t bytes_max) : bytes_left_(bytes_max) {}

  bool Take(const google::protobuf::MessageLite& item) {
    const auto bytes = static_cast<int64_t>(item.ByteSizeLong());
    if (bytes > bytes_left_ && !is_empty_) return false;
    bytes_left_ -= bytes;
    is_empty_ = false;
    return true;
  }

 private:
  int64_t bytes_left_;
  bool is_empty_ = true;
};

}  // namespace sheaf
