#include "aggregation/sparse/row_store.h"

#include <algorithm>
#include <utility>

#include "aggregation/wire/tensor.h"

namespace sheaf {
namespace {

// Rows whose slots are looked up together.
constexpr int kBatch = 256;

}  // namespace

RowStore::RowStore(const OutputLayout& layout)
    : layout_(layout),
      index_(static_cast<uint64_t>(layout.num_coordinates)),
      columns_(layout, /*is_scattered=*/false, nullptr) {
  // The result takes more room, sooner or later; but for rows of no values, of which there may be any number.
  if (layout.releases_dense && layout.width > 0) index_.MakeTable();
}

void RowStore::Find(const int64_t* keys, int n, uint32_t* slots) {
  index_.FindOrAdd(keys, n, slots);
  if (index_.size() > columns_.num_slots) columns_.Resize(index_.size());
}

void RowStore::Accumulate(const CheckedValue& value, float weight) {
  const uint32_t fold = ++num_folds_;
  const int64_t row_bytes = layout_.width * DTypeSize(layout_.dtype);
  const int64_t num_rows = static_cast<int64_t>(value.keys.size());
  for (int64_t begin = 0; begin < num_rows; begin += kBatch) {
    const int n = static_cast<int>(std::min<int64_t>(kBatch, num_rows - begin));
    uint32_t slots[kBatch];
    Find(value.keys.data() + begin, n, slots);
    columns_.cells->AddRows({.rows = {slots, static_cast<size_t>(n)},
                             .width = layout_.width,
                             .values = value.data.data() + begin * row_bytes,
                             .row_bytes = row_bytes},
                            weight);
    if (!columns_.is_counted) continue;
    for (int i = 0; i < n; ++i) {
      if (!columns_.Touch(slots[i], fold) || columns_.weights == nullptr) continue;
      const double wide = weight;
      columns_.weights->Add(slots[i], reinterpret_cast<const char*>(&wide), 1, 1.0f);
    }
  }
}

SparseStore::Place RowStore::FindOrAdd(int64_t key) {
  uint32_t slot = 0;
  Find(&key, 1, &slot);
  return {&columns_, slot};
}

void RowStore::ForEachRun(const std::function<void(const SlotRun&)>& visit) {
  index_.ForEachRun([&](std::span<const int64_t> keys, std::span<const uint32_t> slots) {
    visit({.keys = keys, .slots = slots, .columns = &columns_});
  });
}

std::unique_ptr<const SlotRuns> RowStore::Runs(int64_t run_max, ParallelFor&) {
  SlotRuns::Room ordered;
  ordered.keys.reserve(static_cast<size_t>(index_.size()));
  ordered.slots.reserve(static_cast<size_t>(index_.size()));
  index_.ForEachRun([&](std::span<const int64_t> keys, std::span<const uint32_t> slots) {
    ordered.keys.insert(ordered.keys.end(), keys.begin(), keys.end());
    ordered.slots.insert(ordered.slots.end(), slots.begin(), slots.end());
  });
  return std::make_unique<OrderedSlots>(columns_, std::move(ordered), run_max);
}

v1::FoldCounters RowStore::counters() const {
  v1::FoldCounters counters;
  index_.is_table() ? counters.set_dense_blocks(1) : counters.set_thin_blocks(1);
  return counters;
}

}  // namespace sheaf
