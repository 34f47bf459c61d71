#include "aggregation/memory/row_pool.h"

#include <cstring>

#include "base/check.h"

namespace sheaf {
namespace {

constexpr size_t kFirstBytes = 4 << 10;

}  // namespace

RowPool::RowPool(int64_t row_bytes)
    : row_bytes_(static_cast<size_t>(row_bytes)),
      slab_rows_(static_cast<uint32_t>(std::min<size_t>(kSlabBytes / row_bytes_, size_t{1} << kIndexBits))) {
  SHEAF_CHECK(slab_rows_ > 0, "rows of {} bytes", row_bytes_);
}

void RowPool::Grow() {
  const uint32_t rows = end_ & kIndexMask;
  // Small pools double.
  const uint32_t larger = std::max(2 * rows, static_cast<uint32_t>(kFirstBytes / row_bytes_ + 1));
  if (own_slabs_.empty() && larger < slab_rows_) {
    small_.resize(larger * row_bytes_);
    slabs_.assign(1, small_.data());
    end_ = larger;
    return;
  }
  own_slabs_.push_back(TakeSlab());
  char* const memory = own_slabs_.back().get();
  if (own_slabs_.size() == 1) {
    std::memcpy(memory, small_.data(), small_.size());
    small_ = std::vector<char>();
    slabs_.assign(1, memory);
  } else {
    slabs_.push_back(memory);
    next_ = static_cast<uint32_t>(own_slabs_.size() - 1) << kIndexBits;
  }
  SHEAF_CHECK(own_slabs_.size() <= size_t{1} << (kRowBits - kIndexBits), "a sum of {} rows", num_rows_);
  end_ = (next_ & ~kIndexMask) + slab_rows_;
}

void RowPool::Clear() {
  next_ = end_ = 0;
  num_rows_ = 0;
  small_.clear();
  own_slabs_.clear();
  slabs_.clear();
  unused_.clear();
}

}  // namespace sheaf
