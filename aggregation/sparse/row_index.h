// RowIndex: numbers the coordinates it meets 0, 1, 2, ... in the order in which they first come.
//
//   RowIndex index(num_coordinates);
//   index.FindOrAdd(keys, n, slots);     // slots[i]: the number of keys[i].
//   index.ForEachRun(visit);             // All coordinates in ascending order, and their slots.
//
// It starts as a hashed index, and becomes a table with an entry for every coordinate there could be once that takes
// about as much memory: a table is asked in one step, and is in order. Not thread-safe, but for const methods.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "aggregation/memory/zeroed_pool.h"
#include "aggregation/sparse/slot_index.h"

namespace sheaf {

class RowIndex {
 public:
  // Coordinates are 0 <= key < range.
  explicit RowIndex(uint64_t range) : range_(range) {}

  int64_t size() const { return is_table() ? num_slots_ : hashed_.size(); }
  bool is_table() const { return table_ != nullptr; }
  void FindOrAdd(const int64_t* keys, int n, uint32_t* slots);
  // range < 2^32.
  void MakeTable();
  // All coordinates, in ascending order, and their slots; so many at once at most.
  static constexpr size_t kRunMax = 1024;
  using Visit = std::function<void(std::span<const int64_t> keys, std::span<const uint32_t> slots)>;
  void ForEachRun(const Visit& visit) const;
  int64_t memory_bytes() const { return hashed_.memory_bytes() + pool_.allocated_bytes(); }

 private:
  bool ShouldBeTable() const;
  void ForEachRunOfTable(const Visit& visit) const;

  const uint64_t range_;
  SlotIndex<uint64_t> hashed_;
  ZeroedPool pool_;
  // Slot + 1 of each coordinate; 0 where there is none. Null while the index is hashed.
  uint32_t* table_ = nullptr;
  uint32_t num_slots_ = 0;
};

}  // namespace sheaf
