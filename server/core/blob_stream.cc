#include "server/core/blob_stream.h"

#include <algorithm>
#include <utility>

namespace sheaf {
namespace {

// Stays in the innermost cache between being read and being copied on.
constexpr int64_t kBlockBytes = 32 << 10;

}  // namespace

bool BlobStream::Next(const void** data, int* size) {
  if (backed_up_ == 0) {
    const ByteRange range = {.offset = next_, .length = std::min(kBlockBytes, blob_.size_bytes() - next_)};
    if (range.length <= 0 || !status_.ok()) return false;
    block_.clear();
    status_ = blob_.Append({&range, 1}, block_);
    if (!status_.ok()) return false;
    next_ += range.length;
    backed_up_ = static_cast<int>(range.length);
  }
  *data = block_.data() + (static_cast<int64_t>(block_.size()) - backed_up_);
  *size = std::exchange(backed_up_, 0);
  return true;
}

bool BlobStream::Skip(int count) {
  const int from_block = std::min(count, backed_up_);
  backed_up_ -= from_block;
  const int64_t wanted = count - from_block;
  const int64_t skipped = std::min(wanted, blob_.size_bytes() - next_);
  next_ += skipped;
  return skipped == wanted;
}

}  // namespace sheaf
