// Memory on huge pages, where the system grants them. A fold touches memory all over an accumulator, and 4 KiB pages
// would cost it a TLB miss per row; a large buffer is written once, and each new page costs a fault.
#pragma once

#include <cstddef>

namespace sheaf {

inline constexpr size_t kHugePage = 2 << 20;

// Zeroed memory of a multiple of kHugePage bytes, to be given to munmap. What is never touched stays virtual.
char* MapHugePages(size_t bytes);

// Asks the system to put memory that is not yet touched on huge pages. Does nothing for small pieces.
void AdviseHugePages(void* memory, size_t bytes);

}  // namespace sheaf
