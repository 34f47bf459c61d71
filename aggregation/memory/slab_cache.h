// SlabCache: large pieces of memory that outlive whoever used them last, so that not every round has the system clear
// as much memory as it folds.
//
//   const Slab slab = TakeSlab();   // kSlabBytes on huge pages, of any content; goes back when `slab` goes.
//   const Slab kept = TakeKeptSlab();   // One that was given back; null if there is none.
//   const Slab zeros = MapSlab();       // A new one: all 0, and virtual until it is touched.
//
// Of what was given back up to kKeptBytesMax is kept, for this process. The system may take it back at any time
// (MADV_FREE), and does so before it runs out of memory. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace sheaf {

inline constexpr size_t kSlabBytes = 4 << 20;
inline constexpr int64_t kKeptBytesMax = int64_t{256} << 20;

struct GiveSlabBack {
  void operator()(char* memory) const;
};
using Slab = std::unique_ptr<char, GiveSlabBack>;

Slab TakeSlab();
Slab TakeKeptSlab();
Slab MapSlab();

}  // namespace sheaf
