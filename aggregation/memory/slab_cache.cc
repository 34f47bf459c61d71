#include "aggregation/memory/slab_cache.h"

#include <sys/mman.h>

#include <utility>
#include <vector>

#include "base/huge_pages.h"
#include "base/mutex.h"

namespace sheaf {
namespace {

class SlabCache {
 public:
  char* Take() {
    const MutexLock lock(mutex_);
    if (kept_.empty()) return nullptr;
    char* const memory = kept_.back();
    kept_.pop_back();
    return memory;
  }

  bool Keep(char* memory) {
    const MutexLock lock(mutex_);
    if (kept_.size() >= kKeptBytesMax / kSlabBytes) return false;
    kept_.push_back(memory);
    return true;
  }

 private:
  Mutex mutex_;
  std::vector<char*> kept_ GUARDED_BY(mutex_);
};

// Never destroyed: accumulators may outlive what is.
SlabCache& Cache() {
  static SlabCache& cache = *new SlabCache;
  return cache;
}

}  // namespace

Slab TakeSlab() {
  Slab kept = TakeKeptSlab();
  return kept != nullptr ? std::move(kept) : MapSlab();
}

Slab TakeKeptSlab() { return Slab(Cache().Take()); }

Slab MapSlab() { return Slab(MapHugePages(kSlabBytes)); }

void GiveSlabBack::operator()(char* memory) const {
  // Before it is kept: whoever has it next writes to it, and what is written stays.
  madvise(memory, kSlabBytes, MADV_FREE);
  if (!Cache().Keep(memory)) munmap(memory, kSlabBytes);
}

}  // namespace sheaf
