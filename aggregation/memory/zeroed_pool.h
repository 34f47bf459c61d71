// ZeroedPool: zeroed memory that is given up all at once, for accumulators that only ever grow.
//
//   ZeroedPool pool;
//   double* sums = pool.Allocate<double>(1 << 20);   // All 0, 64-byte aligned, lives as long as the pool.
//
// Large pieces come from slabs on huge pages, where the system grants them: a fold touches memory all over an
// accumulator, and 4 KiB pages would cost it a TLB miss per row. Slabs that other pools gave back are used again; of a
// new one, what is never touched stays virtual. Pieces larger than a slab have pages of their own. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregation/memory/slab_cache.h"
#include "base/mutex.h"

namespace sheaf {

class ZeroedPool {
 public:
  ZeroedPool() = default;
  ZeroedPool(const ZeroedPool&) = delete;
  ZeroedPool& operator=(const ZeroedPool&) = delete;
  ~ZeroedPool();

  template <typename T>
  T* Allocate(int64_t n) {
    const Piece piece = Take(static_cast<size_t>(n) * sizeof(T));
    if (!piece.is_zeroed) std::memset(piece.memory, 0, static_cast<size_t>(n) * sizeof(T));
    return static_cast<T*>(piece.memory);
  }
  // The same, of any content.
  template <typename T>
  T* AllocateUnset(int64_t n) {
    return static_cast<T*>(Take(static_cast<size_t>(n) * sizeof(T)).memory);
  }
  // For whoever asks for as much again.
  template <typename T>
  void GiveBack(T* memory, int64_t n) {
    GiveBackBytes(memory, static_cast<size_t>(n) * sizeof(T));
  }
  // Handed out so far; and of that, given back and not handed out again.
  int64_t allocated_bytes() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return allocated_bytes_;
  }
  int64_t unused_bytes() const EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return unused_bytes_;
  }

 private:
  struct Piece {
    void* memory = nullptr;
    bool is_zeroed = false;
  };
  // Of a piece that is larger than a slab.
  struct Mapping {
    char* memory = nullptr;
    size_t bytes = 0;
  };
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  Piece Take(size_t bytes) EXCLUDES(mutex_);
  void GiveBackBytes(void* memory, size_t bytes) EXCLUDES(mutex_);
  void* Map(size_t bytes) REQUIRES(mutex_);
  // Goes on in other memory, which has room for so much.
  void Grow(size_t bytes) REQUIRES(mutex_);

  mutable Mutex mutex_;
  // Before the first slab.
  std::vector<std::unique_ptr<char, Free>> small_ GUARDED_BY(mutex_);
  std::vector<Slab> slabs_ GUARDED_BY(mutex_);
  std::vector<Mapping> mappings_ GUARDED_BY(mutex_);
  // What nobody has of the newest of small_ or slabs_.
  char* next_ GUARDED_BY(mutex_) = nullptr;
  size_t num_left_ GUARDED_BY(mutex_) = 0;
  bool is_zeroed_ GUARDED_BY(mutex_) = false;
  int64_t allocated_bytes_ GUARDED_BY(mutex_) = 0;
  // Pieces that were given back, by size.
  absl::flat_hash_map<size_t, std::vector<void*>> unused_ GUARDED_BY(mutex_);
  int64_t unused_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace sheaf
