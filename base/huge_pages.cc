#include "base/huge_pages.h"

#include <sys/mman.h>

#include <new>

namespace sheaf {
namespace {

constexpr size_t RoundUp(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

char* MapHugePages(size_t bytes) {
  void* const mapped =
      mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  char* const begin = static_cast<char*>(mapped);
  const size_t before = RoundUp(reinterpret_cast<size_t>(begin)) - reinterpret_cast<size_t>(begin);
  char* const aligned = begin + before;
  if (before > 0) munmap(begin, before);
  munmap(aligned + bytes, kHugePage - before);
  madvise(aligned, bytes, MADV_HUGEPAGE);
  return aligned;
}

void AdviseHugePages(void* memory, size_t bytes) {
  const auto address = reinterpret_cast<size_t>(memory);
  const size_t begin = RoundUp(address);
  const size_t end = (address + bytes) / kHugePage * kHugePage;
  if (begin < end) madvise(static_cast<char*>(memory) + (begin - address), end - begin, MADV_HUGEPAGE);
}

}  // namespace sheaf
