#include "aggregation/memory/zeroed_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/huge_pages.h"

namespace sheaf {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallMin = 4 << 10;
// Who has more than this takes slabs.
constexpr size_t kSmallMax = 1 << 20;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t PieceBytes(size_t bytes) { return RoundUp(std::max<size_t>(bytes, 1), kAlignment); }

}  // namespace

ZeroedPool::~ZeroedPool() {
  for (const Mapping& mapping : mappings_) munmap(mapping.memory, mapping.bytes);
}

ZeroedPool::Piece ZeroedPool::Take(size_t bytes) {
  bytes = PieceBytes(bytes);
  const MutexLock lock(mutex_);
  if (const auto unused = unused_.find(bytes); unused != unused_.end() && !unused->second.empty()) {
    void* const memory = unused->second.back();
    unused->second.pop_back();
    unused_bytes_ -= static_cast<int64_t>(bytes);
    return {.memory = memory, .is_zeroed = false};
  }
  allocated_bytes_ += static_cast<int64_t>(bytes);
  if (bytes > kSlabBytes) return {.memory = Map(bytes), .is_zeroed = true};
  if (num_left_ < bytes) Grow(bytes);
  num_left_ -= bytes;
  return {.memory = std::exchange(next_, next_ + bytes), .is_zeroed = is_zeroed_};
}

void ZeroedPool::GiveBackBytes(void* memory, size_t bytes) {
  bytes = PieceBytes(bytes);
  const MutexLock lock(mutex_);
  unused_[bytes].push_back(memory);
  unused_bytes_ += static_cast<int64_t>(bytes);
}

void* ZeroedPool::Map(size_t bytes) {
  bytes = RoundUp(bytes, kHugePage);
  char* const memory = MapHugePages(bytes);
  mappings_.push_back({.memory = memory, .bytes = bytes});
  return memory;
}

void ZeroedPool::Grow(size_t bytes) {
  // As much as all before: small pools stay small, large ones have few slabs.
  const size_t wanted = std::max({bytes, kSmallMin, static_cast<size_t>(allocated_bytes_) - bytes});
  if (wanted <= kSmallMax) {
    num_left_ = RoundUp(wanted, kAlignment);
    next_ = static_cast<char*>(std::aligned_alloc(kAlignment, num_left_));
    if (next_ == nullptr) throw std::bad_alloc();
    small_.emplace_back(next_);
    is_zeroed_ = false;
    return;
  }
  Slab slab = TakeKeptSlab();
  is_zeroed_ = slab == nullptr;
  slabs_.push_back(is_zeroed_ ? MapSlab() : std::move(slab));
  next_ = slabs_.back().get();
  num_left_ = kSlabBytes;
}

}  // namespace sheaf
