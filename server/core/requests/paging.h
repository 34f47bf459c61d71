// Paging: page sizes and tokens of the lists. Pure.
//
//   PageRoom room(limits.page_bytes_max);
//   const auto read = [&](int limit) {
//     params.limit = limit;
//     return store.ListRounds(params);
//   };
//   const auto add = [&](const RoundRecord& record) -> absl::StatusOr<bool> {
//     ASSIGN_OR_RETURN(const v1::Round round, ToProto(record));
//     if (!room.Take(round)) return false;       // The next page begins here.
//     params.after = record.id;
//     *response.add_rounds() = round;
//     return true;
//   };
//   ASSIGN_OR_RETURN(const bool has_more, FillPage(page_size, read, add));
#pragma once

#include <google/protobuf/message_lite.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"

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

// Reads a page in steps that double, because few items may fill it: no more is read in vain than is on the page, or
// than the first step has. `read(limit)` gives the items behind those that `add` took; `add(item)` says whether there
// was room. Returns whether there may be more. The errors of both.
template <typename Read, typename Add>
absl::StatusOr<bool> FillPage(int page_size, Read read, Add add) {
  constexpr int kFirstStep = 16;
  for (int num_items = 0; num_items < page_size;) {
    const int step = std::min(page_size - num_items, std::max(num_items, kFirstStep));
    ASSIGN_OR_RETURN(const auto items, read(step));
    for (const auto& item : items) {
      ASSIGN_OR_RETURN(const bool has_room, add(item));
      if (!has_room) return true;
    }
    if (static_cast<int>(items.size()) < step) return false;
    num_items += step;
  }
  return true;
}

}  // namespace sheaf
