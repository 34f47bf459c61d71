// BlobView: an open blob or finished upload, read by copying ranges of it.
//
//   ASSIGN_OR_RETURN(std::shared_ptr<const BlobView> blob, payloads.OpenBlob(digest));
//   ASSIGN_OR_RETURN(std::string piece, blob->Read(offset, length));
//   RETURN_IF_ERROR(blob->Append(ranges, rows));
//
// It lends its bytes no longer than Visit takes: a file may be cut off by somebody else at any moment, and whoever
// looked at bytes that are gone would end the process. A view stays readable while it lives, also after its blob was
// moved or deleted. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/byte_sink.h"

namespace sheaf {

struct ByteRange {
  int64_t offset = 0;
  int64_t length = 0;
};

class BlobView {
 public:
  virtual ~BlobView() = default;

  // When it was opened.
  virtual int64_t size_bytes() const = 0;
  // Appends the bytes of the ranges, which lie inside of the blob, one after the other. DATA_LOSS, naming the file, if
  // some are no longer there; INTERNAL if they cannot be read. Then `to` is as it was.
  virtual absl::Status Append(std::span<const ByteRange> ranges, std::string& to) const = 0;

  // Calls read(all bytes), where they lie, and returns what it returned. DATA_LOSS or INTERNAL as Append if some were
  // not there: `read` saw zeros in their place, and what it made of them is not to be used.
  virtual absl::Status Visit(const std::function<absl::Status(std::string_view bytes)>& read) const = 0;

  // One range. The same codes.
  absl::StatusOr<std::string> Read(int64_t offset, int64_t length) const {
    const ByteRange range = {.offset = offset, .length = length};
    std::string bytes;
    if (absl::Status status = Append({&range, 1}, bytes); !status.ok()) return status;
    return bytes;
  }
  // Everything, in pieces of about a megabyte. The same codes, and those of `take`.
  absl::Status ForEachPiece(const ByteSink& take) const {
    constexpr int64_t kPieceBytes = 1 << 20;
    std::string piece;
    for (int64_t at = 0; at < size_bytes(); at += kPieceBytes) {
      piece.clear();
      const ByteRange range = {.offset = at, .length = std::min(kPieceBytes, size_bytes() - at)};
      if (absl::Status status = Append({&range, 1}, piece); !status.ok()) return status;
      if (absl::Status status = take(piece); !status.ok()) return status;
    }
    return absl::OkStatus();
  }
};

// Bytes in memory, which nobody changes any more.
class MemoryBlobView final : public BlobView {
 public:
  explicit MemoryBlobView(std::string bytes) : bytes_(std::make_shared<const std::string>(std::move(bytes))) {}
  explicit MemoryBlobView(std::shared_ptr<const std::string> bytes) : bytes_(std::move(bytes)) {}

  int64_t size_bytes() const override { return static_cast<int64_t>(bytes_->size()); }
  absl::Status Append(std::span<const ByteRange> ranges, std::string& to) const override {
    for (const ByteRange& range : ranges) {
      to.append(*bytes_, static_cast<size_t>(range.offset), static_cast<size_t>(range.length));
    }
    return absl::OkStatus();
  }
  absl::Status Visit(const std::function<absl::Status(std::string_view bytes)>& read) const override {
    return read(*bytes_);
  }

 private:
  const std::shared_ptr<const std::string> bytes_;
};

}  // namespace sheaf
