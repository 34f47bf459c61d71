#include "aggregation/sparse/make_sparse_store.h"

#include "aggregation/sparse/entry_tree.h"
#include "aggregation/sparse/row_store.h"

namespace sheaf {
namespace {

template <typename Offset>
std::unique_ptr<SparseStore> MakeWideTree(const OutputLayout& layout, bool is_counted) {
  if (is_counted) return std::make_unique<EntryTree<Offset, WideValue, true>>(layout);
  return std::make_unique<EntryTree<Offset, WideValue, false>>(layout);
}

}  // namespace

std::unique_ptr<SparseStore> MakeSparseStore(const OutputLayout& layout) {
  // The weighted product of a FLOAT64 does not fit into the eight bytes of an entry.
  const bool is_long = layout.dtype == v1::FLOAT64 && layout.op->is_weighted() && layout.numerics == v1::EXACT;
  if (layout.width != 1 || is_long) return std::make_unique<RowStore>(layout);
  const bool is_counted = layout.counts_contributors() || layout.op->divisor == Divisor::kTouchingWeight;
  if (layout.num_coordinates > (int64_t{1} << 32)) return MakeWideTree<uint64_t>(layout, is_counted);
  if (layout.dtype == v1::FLOAT32 && !layout.op->is_weighted() && !is_counted) {
    return std::make_unique<EntryTree<uint32_t, float, false>>(layout);
  }
  return MakeWideTree<uint32_t>(layout, is_counted);
}

}  // namespace sheaf
