#include "sdk/cpp/client/range_joiner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checksum.h"

namespace sheaf {
namespace {

// A size is a claim of the server: memory beyond this is taken as the bytes come.
constexpr int64_t kReserveMax = 256 << 20;

}  // namespace

absl::Status RangeJoiner::Add(std::string_view range, int64_t size) {
  if (size_ < 0 && size >= 0) {
    size_ = size;
    bytes_.reserve(static_cast<size_t>(std::min(size, kReserveMax)));
  }
  if (size != size_) {
    return absl::DataLossError(fmt::format("the file has {} bytes now and had {} before", size, size_));
  }
  if (static_cast<int64_t>(range.size()) > size_ - offset()) {
    return absl::DataLossError(
        fmt::format("{} bytes arrived from offset {} of a file of {}", range.size(), offset(), size_));
  }
  if (range.empty() && !complete()) {
    return absl::DataLossError(fmt::format("nothing arrived from offset {} of a file of {} bytes", offset(), size_));
  }
  bytes_.append(range);
  return absl::OkStatus();
}

absl::Status RangeJoiner::Check(std::string_view digest) const {
  const std::string actual = Sha256Hex(bytes_);
  if (actual == digest) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("the bytes that arrived have the digest {} and should have {}; read again", actual, digest));
}

}  // namespace sheaf
