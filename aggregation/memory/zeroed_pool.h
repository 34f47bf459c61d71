// ZeroedPool: zeroed memory that goes back to the system all at once, for accumulators that only ever grow.
//
//   ZeroedPool pool;
//   double* sums = pool.Allocate<double>(1 << 20);   // All 0, 64-byte aligned, lives as long as the pool.
//
// Large pieces come from pages of their own, on huge pages where the system grants them: a fold touches memory all over
// an accumulator, and 4 KiB pages would cost it a TLB miss per row. What is never touched stays virtual. Not
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace sheaf {

class ZeroedPool {
 public:
  ZeroedPool() = default;
  ZeroedPool(const ZeroedPool&) = delete;
  ZeroedPool& operator=(const ZeroedPool&) = delete;
  ~ZeroedPool();

  template <typename T>
  T* Allocate(int64_t n) {
    return static_cast<T*>(AllocateBytes(static_cast<size_t>(n) * sizeof(T)));
  }
  // For whoever asks for as much again.
  template <typename T>
  void GiveBack(T* memory, int64_t n) {
    GiveBackBytes(memory, static_cast<size_t>(n) * sizeof(T));
  }
  // Handed out so far; and of that, given back and not handed out again.
  int64_t allocated_bytes() const { return allocated_bytes_; }
  int64_t unused_bytes() const { return unused_bytes_; }

 private:
  struct Slab {
    char* memory = nullptr;
    size_t size = 0;
    bool is_mapped = false;
  };

  void* AllocateBytes(size_t bytes);
  void GiveBackBytes(void* memory, size_t bytes);
  void AddSlab(size_t bytes);

  std::vector<Slab> slabs_;
  // Of the last slab.
  size_t used_ = 0;
  int64_t allocated_bytes_ = 0;
  // Pieces that were given back, by size.
  absl::flat_hash_map<size_t, std::vector<void*>> unused_;
  int64_t unused_bytes_ = 0;
};

}  // namespace sheaf
