// SortByKey: slots in ascending order of their unsigned keys. Keys are distinct.
//
// Least significant digit first, 11 bits at a time, and only as many digits as the largest key has: two or three passes
// for what lies in one block, where comparing would take log2(n) mispredicted branches each.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace sheaf {

template <typename Key>
struct KeyedSlot {
  Key key;
  uint32_t slot;
};

template <typename Key>
void SortByKey(std::vector<KeyedSlot<Key>>& slots) {
  constexpr size_t kFew = 256;
  if (slots.size() < kFew) {
    std::sort(slots.begin(), slots.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
    return;
  }
  constexpr int kBits = 11;
  constexpr size_t kRadix = size_t{1} << kBits;
  Key largest = 0;
  for (const KeyedSlot<Key>& slot : slots) largest = std::max(largest, slot.key);
  std::vector<KeyedSlot<Key>> sorted(slots.size());
  for (int shift = 0; shift < static_cast<int>(std::bit_width(largest)); shift += kBits) {
    std::array<size_t, kRadix> begin{};
    for (const KeyedSlot<Key>& slot : slots) ++begin[(slot.key >> shift) % kRadix];
    size_t sum = 0;
    for (size_t& n : begin) {
      const size_t count = n;
      n = sum;
      sum += count;
    }
    for (const KeyedSlot<Key>& slot : slots) sorted[begin[(slot.key >> shift) % kRadix]++] = slot;
    slots.swap(sorted);
  }
}

}  // namespace sheaf
