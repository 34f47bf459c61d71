// SparseBlock: the running values of a range of coordinates, of which some were touched.
//
//   SparseBlock<uint32_t> block(layout, range, /*is_scattered=*/true, /*pool=*/nullptr);
//   block.FindOrAdd(offsets, n, slots);            // Where the values at these coordinates are.
//   block.columns().cells->AddScattered(slots, values, n, precision);
//
// A thin block numbers its coordinates as they come (hashed); a dense one has a slot for every coordinate of the range
// and a bit for each that was touched. It goes from the one to the other when that is less memory. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregation/cells/cell_vector.h"
#include "aggregation/memory/raw_vector.h"
#include "aggregation/memory/zeroed_pool.h"
#include "aggregation/output/output_layout.h"
#include "aggregation/sparse/slot_index.h"

namespace sheaf {

// Bytes that SlotColumns takes for a slot beside its cells.
int64_t SlotBytes(const OutputLayout& layout);

// What is kept for each slot.
struct SlotColumns {
  int64_t num_slots = 0;
  // `width` cells per slot.
  int64_t width = 1;
  std::unique_ptr<CellVector> cells;
  // One cell per slot: the weight of those who touched it. Null if nothing is divided by it.
  std::unique_ptr<CellVector> weights;
  bool is_counted = false;
  // Clients who touched it, and the newest contribution that did, counted from 1. Empty if not counted.
  std::vector<int64_t> contributors;
  std::vector<uint32_t> newest_folds;

  SlotColumns(const OutputLayout& layout, bool is_scattered, ZeroedPool* pool);
  void Resize(int64_t new_num_slots);
  // Takes everything at a slot of other columns in.
  void AddFrom(int64_t slot, const SlotColumns& other, int64_t other_slot);
  // Notes that contribution `fold` touched the slot; true if that is news.
  bool Touch(uint32_t slot, uint32_t fold) {
    if (newest_folds[slot] == fold) return false;
    newest_folds[slot] = fold;
    ++contributors[slot];
    return true;
  }
  int64_t memory_bytes() const;
};

template <typename Offset>
class SparseBlock {
 public:
  // Coordinates are 0 <= offset < range. `is_scattered`: as CellUse; `pool`, too, for a block that became dense.
  SparseBlock(const OutputLayout& layout, uint64_t range, bool is_scattered, ZeroedPool* pool);

  // Makes room for so many more coordinates, if the block is thin.
  void Reserve(int64_t more);
  // Slots of the offsets, added where they are new. The columns have room for all of them.
  void FindOrAdd(const Offset* offsets, int n, uint32_t* slots);
  // Gives every coordinate a slot. Slots change.
  void MakeDense();
  // True if MakeDense would save memory once `more` coordinates are added.
  bool ShouldBeDense(int64_t more) const;
  bool is_dense() const { return is_dense_; }

  int64_t num_touched() const;
  // In ascending order: the touched coordinates, each `base` plus its offset, and their slots.
  void Sorted(uint64_t base, RawVector<int64_t>& coordinates, RawVector<uint32_t>& slots) const;

  SlotColumns& columns() { return *columns_; }
  const SlotColumns& columns() const { return *columns_; }
  uint64_t range() const { return range_; }
  int64_t memory_bytes() const;

 private:
  const OutputLayout& layout_;
  uint64_t range_;
  bool is_scattered_;
  ZeroedPool* pool_;
  std::unique_ptr<SlotColumns> columns_;
  SlotIndex<Offset> index_;
  bool is_dense_ = false;
  // Dense blocks: one bit per coordinate.
  std::vector<uint64_t> touched_;
};

extern template class SparseBlock<uint32_t>;
extern template class SparseBlock<uint64_t>;

}  // namespace sheaf
