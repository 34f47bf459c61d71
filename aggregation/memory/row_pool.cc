#include "aggregation/memory/row_pool.h"

#include <algorithm>
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

int64_t RowPool::num_free() const {
  const auto num_slabs = static_cast<int64_t>(slabs_.size());
  return (num_slabs - next_slab_) * slab_size_ - next_index_;
}

void RowPool::Reserve(int64_t rows, int num_places) {
  const MutexLock lock(mutex_);
  while (num_free() < rows + num_places * int64_t{kRun}) Grow();
}

void RowPool::TakeRun(Places& places) {
  const MutexLock lock(mutex_);
  if (num_free() == 0) Grow();
  if (next_index_ == slab_size_) {
    ++next_slab_;
    next_index_ = 0;
  }
  const uint32_t n = std::min(kRun, slab_size_ - next_index_);
  places.next_ = static_cast<uint32_t>(next_slab_) << kIndexBits | next_index_;
  places.end_ = places.next_ + n;
  next_index_ += n;
  num_rows_ += n;
}

void RowPool::Grow() {
  // Small pools double.
  const uint32_t larger = std::max(2 * slab_size_, static_cast<uint32_t>(kFirstBytes / row_bytes_ + 1));
  if (own_slabs_.empty() && larger < slab_rows_) {
    small_.resize(larger * row_bytes_);
    slabs_.assign(1, small_.data());
    slab_size_ = larger;
    return;
  }
  own_slabs_.push_back(TakeSlab());
  char* const memory = own_slabs_.back().get();
  slab_size_ = slab_rows_;
  if (own_slabs_.size() == 1) {
    if (!small_.empty()) std::memcpy(memory, small_.data(), small_.size());
    small_ = std::vector<char>();
    slabs_.assign(1, memory);
  } else {
    slabs_.push_back(memory);
  }
  SHEAF_CHECK(own_slabs_.size() <= size_t{1} << (kRowBits - kIndexBits), "a sum of {} rows", num_rows_);
}

void RowPool::Clear() {
  const MutexLock lock(mutex_);
  next_slab_ = 0;
  next_index_ = slab_size_ = 0;
  num_rows_ = 0;
  small_.clear();
  own_slabs_.clear();
  slabs_.clear();
}

}  // namespace sheaf
