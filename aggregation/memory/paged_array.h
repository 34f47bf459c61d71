// PagedArray: a growing array whose elements stay where they are once it has filled its first page.
//
//   PagedArray<double> sums;
//   sums.Resize(n, 0.0);
//   sums.ForEachPiece(0, n, [](double* piece, int64_t, int64_t count) { std::fill_n(piece, count, 1.0); });
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "aggregation/memory/zeroed_pool.h"

namespace sheaf {

template <typename T>
class PagedArray {
 public:
  // 4 MiB of doubles.
  static constexpr int64_t kPage = int64_t{1} << 19;

  // `pool`: memory of an array that is resized once. Null: its own.
  explicit PagedArray(ZeroedPool* pool = nullptr) : shared_pool_(pool) {}

  int64_t size() const { return size_; }
  // Elements that are new are `fill`.
  void Resize(int64_t size, T fill) {
    if (size <= size_) return;
    if (pages_.empty()) pages_.push_back(nullptr);
    if (shared_pool_ != nullptr && size_ == 0) {
      pages_[0] = NewPage(*shared_pool_, std::min(size, kPage), fill);
    } else if (shared_pool_ == nullptr) {
      const int64_t first = std::min(size, kPage);
      const int64_t capacity = static_cast<int64_t>(first_page_.capacity());
      // Grows by a quarter: first pages of small arrays are many.
      if (first > capacity)
        first_page_.reserve(static_cast<size_t>(std::max(first, std::min(kPage, capacity + capacity / 4))));
      if (first > static_cast<int64_t>(first_page_.size())) first_page_.resize(static_cast<size_t>(first), fill);
      pages_[0] = first_page_.data();
    }
    const int64_t num_pages = (size + kPage - 1) / kPage;
    while (static_cast<int64_t>(pages_.size()) < num_pages) pages_.push_back(NewPage(pool_, kPage, fill));
    size_ = size;
  }

  T& operator[](int64_t i) { return pages_[static_cast<size_t>(i / kPage)][i % kPage]; }
  const T& operator[](int64_t i) const { return pages_[static_cast<size_t>(i / kPage)][i % kPage]; }
  // All elements in one piece; size() <= kPage.
  T* data() { return pages_[0]; }

  // Calls visit(pointer, offset from `at`, count) for neighbouring pieces that make up [at, at + count).
  template <typename Visit>
  void ForEachPiece(int64_t at, int64_t count, Visit visit) {
    for (int64_t done = 0; done < count;) {
      const int64_t in_page = (at + done) % kPage;
      const int64_t n = std::min(kPage - in_page, count - done);
      visit(pages_[static_cast<size_t>((at + done) / kPage)] + in_page, done, n);
      done += n;
    }
  }
  template <typename Visit>
  void ForEachPiece(int64_t at, int64_t count, Visit visit) const {
    const_cast<PagedArray*>(this)->ForEachPiece(
        at, count, [&](const T* piece, int64_t offset, int64_t n) { visit(piece, offset, n); });
  }
  void Fill(T value) {
    ForEachPiece(0, size_, [value](T* piece, int64_t, int64_t n) { std::fill_n(piece, n, value); });
  }
  int64_t memory_bytes() const {
    return static_cast<int64_t>(first_page_.capacity() * sizeof(T) + pages_.capacity() * sizeof(T*)) +
           pool_.allocated_bytes() +
           (shared_pool_ == nullptr ? 0 : std::min(size_, kPage) * static_cast<int64_t>(sizeof(T)));
  }

 private:
  static T* NewPage(ZeroedPool& pool, int64_t n, T fill) {
    if (fill == T{}) return pool.Allocate<T>(n);
    T* const page = pool.AllocateUnset<T>(n);
    std::fill_n(page, n, fill);
    return page;
  }

  ZeroedPool* shared_pool_;
  int64_t size_ = 0;
  std::vector<T> first_page_;
  std::vector<T*> pages_;
  ZeroedPool pool_;
};

}  // namespace sheaf
