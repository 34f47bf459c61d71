#include "aggregation/memory/zeroed_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/huge_pages.h"

namespace sheaf {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kFirstSlab = 4 << 10;
constexpr size_t kLargestSlab = 32 << 20;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t PieceBytes(size_t bytes) { return RoundUp(std::max<size_t>(bytes, 1), kAlignment); }

}  // namespace

ZeroedPool::~ZeroedPool() {
  for (const Slab& slab : slabs_)
    slab.is_mapped ? static_cast<void>(munmap(slab.memory, slab.size)) : std::free(slab.memory);
}

void* ZeroedPool::AllocateBytes(size_t bytes) {
  bytes = PieceBytes(bytes);
  if (const auto unused = unused_.find(bytes); unused != unused_.end() && !unused->second.empty()) {
    void* const memory = unused->second.back();
    unused->second.pop_back();
    unused_bytes_ -= static_cast<int64_t>(bytes);
    return std::memset(memory, 0, bytes);
  }
  if (slabs_.empty() || slabs_.back().size - used_ < bytes) AddSlab(bytes);
  char* const memory = slabs_.back().memory + used_;
  used_ += bytes;
  allocated_bytes_ += static_cast<int64_t>(bytes);
  return memory;
}

void ZeroedPool::GiveBackBytes(void* memory, size_t bytes) {
  bytes = PieceBytes(bytes);
  unused_[bytes].push_back(memory);
  unused_bytes_ += static_cast<int64_t>(bytes);
}

void ZeroedPool::AddSlab(size_t bytes) {
  // Each as large as all before it: small pools stay small, large ones have few slabs.
  const size_t wanted = std::max({bytes, kFirstSlab, std::min(static_cast<size_t>(allocated_bytes_), kLargestSlab)});
  Slab slab;
  if (wanted < kHugePage) {
    slab.size = RoundUp(wanted, kAlignment);
    slab.memory = static_cast<char*>(std::aligned_alloc(kAlignment, slab.size));
    if (slab.memory == nullptr) throw std::bad_alloc();
    std::fill_n(slab.memory, slab.size, '\0');
  } else {
    slab.size = RoundUp(wanted, kHugePage);
    slab.memory = MapHugePages(slab.size);
    slab.is_mapped = true;
  }
  slabs_.push_back(slab);
  used_ = 0;
}

}  // namespace sheaf
