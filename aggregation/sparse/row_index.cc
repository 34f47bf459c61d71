#include "aggregation/sparse/row_index.h"

#include <algorithm>
#include <vector>

#include "aggregation/sparse/radix_sort.h"
#include "base/check.h"

namespace sheaf {
namespace {

// A hashed index doubles when it is full: one of this many times its memory is what it may become anyway.
constexpr uint64_t kTableCost = 2;
constexpr uint64_t kTableRangeMax = uint64_t{1} << 32;

}  // namespace

bool RowIndex::ShouldBeTable() const {
  return range_ < kTableRangeMax &&
         range_ * sizeof(uint32_t) <= kTableCost * static_cast<uint64_t>(hashed_.memory_bytes());
}

void RowIndex::MakeTable() {
  SHEAF_CHECK(range_ < kTableRangeMax);
  table_ = pool_.Allocate<uint32_t>(static_cast<int64_t>(range_));
  num_slots_ = static_cast<uint32_t>(hashed_.size());
  for (uint32_t slot = 0; slot < num_slots_; ++slot) table_[hashed_.key(slot)] = slot + 1;
  hashed_ = SlotIndex<uint64_t>();
}

void RowIndex::FindOrAdd(const int64_t* keys, int n, uint32_t* slots) {
  if (!is_table()) {
    static_assert(sizeof(uint64_t) == sizeof(int64_t));
    hashed_.FindOrAdd(reinterpret_cast<const uint64_t*>(keys), n, slots);
    if (ShouldBeTable()) MakeTable();
    return;
  }
  for (int i = 0; i < n; ++i) __builtin_prefetch(&table_[keys[i]], 1);
  for (int i = 0; i < n; ++i) {
    uint32_t& entry = table_[keys[i]];
    if (entry == 0) entry = ++num_slots_;
    slots[i] = entry - 1;
  }
}

void RowIndex::ForEachRun(const Visit& visit) const {
  if (is_table()) return ForEachRunOfTable(visit);
  const auto n = static_cast<size_t>(size());
  std::vector<KeyedSlot<uint64_t>> order(n);
  for (size_t slot = 0; slot < n; ++slot) {
    order[slot] = {hashed_.key(static_cast<int64_t>(slot)), static_cast<uint32_t>(slot)};
  }
  SortByKey(order);
  int64_t keys[kRunMax];
  uint32_t slots[kRunMax];
  for (size_t begin = 0; begin < n; begin += kRunMax) {
    const size_t count = std::min(kRunMax, n - begin);
    for (size_t i = 0; i < count; ++i) {
      keys[i] = static_cast<int64_t>(order[begin + i].key);
      slots[i] = order[begin + i].slot;
    }
    visit({keys, count}, {slots, count});
  }
}

void RowIndex::ForEachRunOfTable(const Visit& visit) const {
  int64_t keys[kRunMax];
  uint32_t slots[kRunMax];
  size_t count = 0;
  for (uint64_t key = 0; key < range_; ++key) {
    // Written whether it is there or not: nothing could predict which ones are.
    keys[count] = static_cast<int64_t>(key);
    slots[count] = table_[key] - 1;
    count += table_[key] != 0 ? 1 : 0;
    if (count < kRunMax) continue;
    visit({keys, count}, {slots, count});
    count = 0;
  }
  if (count > 0) visit({keys, count}, {slots, count});
}

}  // namespace sheaf
