// RowPool: pieces of memory of one size, addressed by number, for rows that come one by one.
//
//   RowPool pool(64 * sizeof(float));
//   const uint32_t row = pool.Take();                  // Of any content: whoever takes it writes all of it.
//   std::memcpy(pool.row(row), values, pool.row_bytes());
//   pool.GiveBack(row);                                // The next to be taken.
//
// Rows that are taken one after the other are neighbours, so that writing them is writing along a stream. They may move
// at the next Take. Nobody clears them. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aggregation/memory/slab_cache.h"

namespace sheaf {

class RowPool {
 public:
  // Numbers of rows have so many bits.
  static constexpr int kRowBits = 30;

  // 0 < row_bytes <= kSlabBytes.
  explicit RowPool(int64_t row_bytes);

  uint32_t Take() {
    if (!unused_.empty()) {
      const uint32_t row = unused_.back();
      unused_.pop_back();
      return row;
    }
    if (next_ == end_) Grow();
    ++num_rows_;
    return next_++;
  }
  void GiveBack(uint32_t row) { unused_.push_back(row); }

  char* row(uint32_t row) { return slabs_[row >> kIndexBits] + (row & kIndexMask) * row_bytes_; }
  const char* row(uint32_t row) const { return slabs_[row >> kIndexBits] + (row & kIndexMask) * row_bytes_; }
  // Says that the row will be asked for soon. Inline, always: gcc drops calls of functions that only prefetch.
  [[gnu::always_inline]] void Prefetch(uint32_t row) const {
    constexpr size_t kLine = 64;
    // The rest of a long row is fetched by the stream prefetcher.
    constexpr size_t kLines = 8;
    const char* const begin = this->row(row);
    const size_t bytes = std::min(row_bytes_, kLines * kLine);
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(begin + at, 1);
  }

  size_t row_bytes() const { return row_bytes_; }
  bool is_empty() const { return num_rows_ == unused_.size(); }
  // Of all rows that were taken, those given back included.
  int64_t memory_bytes() const {
    return static_cast<int64_t>(num_rows_ * row_bytes_ + unused_.capacity() * sizeof(uint32_t));
  }
  // Gives everything back.
  void Clear();

 private:
  // A number is that of a slab, and an index in it.
  static constexpr int kIndexBits = 16;
  static constexpr uint32_t kIndexMask = (uint32_t{1} << kIndexBits) - 1;

  // Makes room for a row at `next_`.
  void Grow();

  const size_t row_bytes_;
  const uint32_t slab_rows_;
  // Of rows that were never taken: the next, and where its slab ends.
  uint32_t next_ = 0;
  uint32_t end_ = 0;
  size_t num_rows_ = 0;
  // Slab 0 while it is small.
  std::vector<char> small_;
  std::vector<Slab> own_slabs_;
  std::vector<char*> slabs_;
  std::vector<uint32_t> unused_;
};

}  // namespace sheaf
