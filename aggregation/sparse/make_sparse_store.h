// MakeSparseStore: the store that suits an output, of those that there are.
//
//   EntryTree  single values: entries wait in buckets of neighbouring coordinates, and are folded bucket by bucket, so
//              that what is touched at random is small enough for the cache
//   RowStore   rows of values: each is folded at once; one row fills cache lines by itself
#pragma once

#include <memory>

#include "aggregation/output/output_layout.h"
#include "aggregation/sparse/sparse_store.h"

namespace sheaf {

// `layout` must outlive the store.
std::unique_ptr<SparseStore> MakeSparseStore(const OutputLayout& layout);

}  // namespace sheaf
