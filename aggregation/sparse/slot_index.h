// SlotIndex: numbers the keys it meets 0, 1, 2, ... in the order in which they first come.
//
//   SlotIndex<uint32_t> index;
//   index.FindOrAdd(keys, n, slots);   // slots[i]: the number of keys[i].
//
// An open-addressing table of 4-byte slots beside an array of the keys, at most 3/4 full. The order of the table
// depends on this process's secret, so that nobody can send keys that collide; the numbers do not. Not thread-safe, but
// for const methods.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/process_secret.h"

namespace sheaf {

template <typename Key>
class SlotIndex {
 public:
  int64_t size() const { return static_cast<int64_t>(keys_.size()); }
  Key key(int64_t slot) const { return keys_[static_cast<size_t>(slot)]; }

  void Reserve(int64_t size) {
    const size_t num_entries = std::bit_ceil(static_cast<size_t>(size) * 4 / 3 + 1);
    if (num_entries > table_.size()) Rehash(num_entries);
    keys_.reserve(static_cast<size_t>(size));
  }

  uint32_t FindOrAdd(Key key) {
    if (keys_.size() >= limit_) Rehash(table_.empty() ? 64 : 2 * table_.size());
    for (size_t at = Hash(key);; at = (at + 1) & mask_) {
      const uint32_t entry = table_[at];
      if (entry == 0) {
        keys_.push_back(key);
        return (table_[at] = static_cast<uint32_t>(keys_.size())) - 1;
      }
      if (keys_[entry - 1] == key) return entry - 1;
    }
  }

  void FindOrAdd(const Key* keys, int n, uint32_t* slots) {
    Prefetch(keys, n);
    for (int i = 0; i < n; ++i) slots[i] = FindOrAdd(keys[i]);
  }

  int64_t memory_bytes() const {
    return static_cast<int64_t>(keys_.capacity() * sizeof(Key) + table_.capacity() * sizeof(uint32_t));
  }

 private:
  static constexpr size_t kCachedEntries = 1 << 16;

  size_t Hash(Key key) const {
    // Multiplication by an odd number (Fibonacci hashing) of keys that nobody outside knows any more. One that spreads
    // all series of keys well, neighbours above all: a secret one would be slow in some processes.
    const uint64_t keyed = static_cast<uint64_t>(key) ^ secret_;
    const uint64_t mixed = (keyed ^ (keyed >> 32)) * 0xd6e8feb86659fd93u;
    return static_cast<size_t>(mixed >> shift_);
  }

  // A table beyond the cache is asked for everything first.
  [[gnu::always_inline]] void Prefetch(const Key* keys, int n) const {
    if (table_.size() <= kCachedEntries) return;
    for (int i = 0; i < n; ++i) __builtin_prefetch(&table_[Hash(keys[i])]);
    for (int i = 0; i < n; ++i) {
      const uint32_t entry = table_[Hash(keys[i])];
      if (entry != 0) __builtin_prefetch(&keys_[entry - 1]);
    }
  }

  void Rehash(size_t num_entries) {
    table_.assign(num_entries, 0);
    mask_ = num_entries - 1;
    shift_ = 64 - std::countr_zero(num_entries);
    limit_ = num_entries / 4 * 3;
    for (size_t slot = 0; slot < keys_.size(); ++slot) {
      size_t at = Hash(keys_[slot]);
      while (table_[at] != 0) at = (at + 1) & mask_;
      table_[at] = static_cast<uint32_t>(slot + 1);
    }
  }

  // Of all indexes: there are many small ones.
  static inline const uint64_t secret_ = ProcessSecret()[0];
  // Slot + 1; 0 where there is none.
  std::vector<uint32_t> table_;
  size_t mask_ = 0;
  int shift_ = 0;
  size_t limit_ = 0;
  std::vector<Key> keys_;
};

}  // namespace sheaf
