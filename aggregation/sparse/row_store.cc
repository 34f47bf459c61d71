#include "aggregation/sparse/row_store.h"

#include <algorithm>

#include "aggregation/wire/tensor.h"

namespace sheaf {
namespace {

// Rows whose slots are looked up together.
constexpr int kBatch = 256;
// How many rows before its turn a row is fetched.
constexpr int kAhead = 4;
// Rows released together.
constexpr size_t kRunMax = 1024;

}  // namespace

RowStore::RowStore(const OutputLayout& layout)
    : layout_(layout), block_(layout, static_cast<uint64_t>(layout.num_coordinates), /*is_scattered=*/false, nullptr) {
  // The result takes the same room, sooner or later; but for rows of no values, of which there may be any number.
  if (layout.releases_dense && layout.width > 0) block_.MakeDense();
}

void RowStore::Accumulate(const CheckedValue& value, float weight) {
  const uint32_t fold = ++num_folds_;
  const int64_t row_bytes = layout_.width * DTypeSize(layout_.dtype);
  const int64_t num_rows = static_cast<int64_t>(value.keys.size());
  for (int64_t begin = 0; begin < num_rows; begin += kBatch) {
    const int n = static_cast<int>(std::min<int64_t>(kBatch, num_rows - begin));
    uint64_t keys[kBatch];
    uint32_t slots[kBatch];
    std::copy_n(value.keys.begin() + begin, n, keys);
    block_.FindOrAdd(keys, n, slots);
    SlotColumns& columns = block_.columns();
    for (int i = 0; i < n; ++i) {
      if (i + kAhead < n) columns.cells->Prefetch(slots[i + kAhead] * layout_.width, layout_.width);
      columns.cells->Add(slots[i] * layout_.width, value.data.data() + (begin + i) * row_bytes, layout_.width, weight);
      if (!columns.is_counted || !columns.Touch(slots[i], fold) || columns.weights == nullptr) continue;
      const double wide = weight;
      columns.weights->Add(slots[i], reinterpret_cast<const char*>(&wide), 1, 1.0f);
    }
  }
}

SparseStore::Place RowStore::FindOrAdd(int64_t key) {
  const uint64_t offset = static_cast<uint64_t>(key);
  uint32_t slot = 0;
  block_.FindOrAdd(&offset, 1, &slot);
  return {&block_.columns(), slot};
}

void RowStore::ForEachRun(const std::function<void(const SlotRun&)>& visit) {
  std::vector<int64_t> keys;
  std::vector<uint32_t> slots;
  block_.Sorted(0, keys, slots);
  for (size_t begin = 0; begin < keys.size(); begin += kRunMax) {
    const size_t n = std::min(kRunMax, keys.size() - begin);
    visit({.keys = std::span(keys).subspan(begin, n),
           .slots = std::span(slots).subspan(begin, n),
           .columns = &block_.columns()});
  }
}

v1::FoldCounters RowStore::counters() const {
  v1::FoldCounters counters;
  block_.is_dense() ? counters.set_dense_blocks(1) : counters.set_thin_blocks(1);
  return counters;
}

}  // namespace sheaf
