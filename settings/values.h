// The values that settings have, and their texts: "64MiB", "30s".
//
//   ASSIGN_OR_RETURN(const int64_t bytes, ParseBytes("64MiB"));   // 67108864
//   const std::string text = FormatBytes(bytes);                  // "64MiB"
//
// What is no value is INVALID_ARGUMENT, and says what would be right: "many" is not a whole number from 1 to 256.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sheaf {

struct NumberBounds {
  int64_t min = 1;
  int64_t max = std::numeric_limits<int64_t>::max();
};
absl::StatusOr<int64_t> ParseNumber(const std::string& text, NumberBounds bounds);

// A number above 0 of bytes, or with B, KiB, MiB, GiB or TiB. `example` stands in the error.
absl::StatusOr<int64_t> ParseBytes(const std::string& text, std::string_view example = "64MiB");
// In the largest unit of which it is a whole number.
std::string FormatBytes(int64_t bytes);

struct DurationBounds {
  bool may_be_zero = false;
  bool may_be_infinite = false;
};
// "30s", "5m", "1h30m"; a bare number means seconds. `example` stands in the error.
absl::StatusOr<absl::Duration> ParseDuration(const std::string& text, DurationBounds bounds,
                                             std::string_view example = "30s");

absl::StatusOr<bool> ParseTruth(const std::string& text);

}  // namespace sheaf
