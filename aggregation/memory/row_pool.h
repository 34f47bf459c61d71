// RowPool: pieces of memory of one size, addressed by number, for rows that come one by one.
//
//   RowPool pool(64 * sizeof(float));
//   RowPool::Places places;                            // Of one thread.
//   const uint32_t row = pool.Take(places);            // Of any content: whoever takes it writes all of it.
//   std::memcpy(pool.row(row), values, pool.row_bytes());
//   places.GiveBack(row);                              // The next to be taken.
//
// Rows that are taken one after the other are neighbours, so that writing them is writing along a stream. They may move
// at the next Take. Nobody clears them.
//
// Not thread-safe; but after Reserve(n) several threads, each with places of its own, may take n rows together, and use
// theirs: no row moves.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aggregation/memory/slab_cache.h"
#include "base/mutex.h"

namespace sheaf {

class RowPool {
 public:
  // Numbers of rows have so many bits.
  static constexpr int kRowBits = 30;

  // 0 < row_bytes <= kSlabBytes.
  explicit RowPool(int64_t row_bytes);

  // Numbers that are to be taken.
  class Places {
   public:
    void GiveBack(uint32_t row) { unused_.push_back(row); }
    // Of its rows: that were given back, or never taken; that were never taken.
    size_t num_unused() const { return unused_.size() + num_untouched(); }
    size_t num_untouched() const { return end_ - next_; }
    int64_t memory_bytes() const { return static_cast<int64_t>(unused_.capacity() * sizeof(uint32_t)); }

   private:
    friend class RowPool;
    std::vector<uint32_t> unused_;
    // Neighbours that nobody had yet.
    uint32_t next_ = 0;
    uint32_t end_ = 0;
  };
  // So many neighbours at once, but for the end of a slab.
  static constexpr uint32_t kRun = 32;

  uint32_t Take(Places& places) {
    if (!places.unused_.empty()) {
      const uint32_t row = places.unused_.back();
      places.unused_.pop_back();
      return row;
    }
    if (places.next_ == places.end_) TakeRun(places);
    return places.next_++;
  }
  // Room for so many rows more, taken with up to `num_places` places.
  void Reserve(int64_t rows, int num_places) EXCLUDES(mutex_);

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
  // That places have, taken or not.
  size_t num_rows() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return num_rows_;
  }
  // Gives everything back.
  void Clear() EXCLUDES(mutex_);

 private:
  // A number is that of a slab, and an index in it.
  static constexpr int kIndexBits = 16;
  static constexpr uint32_t kIndexMask = (uint32_t{1} << kIndexBits) - 1;

  // Gives places the next run.
  void TakeRun(Places& places) EXCLUDES(mutex_);
  // Adds rows behind those there are.
  void Grow() REQUIRES(mutex_);
  // How many rows there are that no places have.
  int64_t num_free() const REQUIRES(mutex_);

  const size_t row_bytes_;
  const uint32_t slab_rows_;
  mutable Mutex mutex_;
  // Where the next run begins, and how many rows places have.
  int64_t next_slab_ GUARDED_BY(mutex_) = 0;
  uint32_t next_index_ GUARDED_BY(mutex_) = 0;
  size_t num_rows_ GUARDED_BY(mutex_) = 0;
  // Of all slabs: slab_rows_, but for slab 0 while it is small.
  uint32_t slab_size_ GUARDED_BY(mutex_) = 0;
  // Slab 0 while it is small.
  std::vector<char> small_ GUARDED_BY(mutex_);
  std::vector<Slab> own_slabs_ GUARDED_BY(mutex_);
  // Read without the mutex: grows in Take and Reserve, when there is no other thread.
  std::vector<char*> slabs_;
};

}  // namespace sheaf
