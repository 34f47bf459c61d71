// RangeJoiner: joins the ranges of a file that is read piece by piece, and checks the whole against its digest.
//
//   RangeJoiner file;
//   while (!file.complete()) {
//     request.set_offset(file.offset());
//     ASSIGN_OR_RETURN(const v1::ReadBlobResponse piece, BlockingCall(transport, kReadBlob, request));
//     RETURN_IF_ERROR(file.Add(piece.data(), piece.size_bytes()));
//   }
//   RETURN_IF_ERROR(file.Check(digest));
//   std::string bytes = std::move(file).Take();
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace sheaf {

// As much as a client reads of one blob or aggregate unless it is told otherwise: the largest broadcast that a server
// takes unless it is told otherwise. A size is a claim of the server's.
inline constexpr int64_t kReadBytesMax = int64_t{16} << 30;

class RangeJoiner {
 public:
  // Where the next range begins.
  int64_t offset() const { return static_cast<int64_t>(bytes_.size()); }
  bool complete() const { return offset() == size_; }
  // `size` is that of the whole file. DATA_LOSS if it changed, or the range is empty or goes beyond it.
  absl::Status Add(std::string_view range, int64_t size);
  // DATA_LOSS if the bytes have another digest.
  absl::Status Check(std::string_view digest) const;
  std::string Take() && { return std::move(bytes_); }

 private:
  std::string bytes_;
  // Unknown at first.
  int64_t size_ = -1;
};

}  // namespace sheaf
