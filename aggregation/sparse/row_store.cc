#include "aggregation/sparse/row_store.h"

#include <algorithm>
#include <utility>

#include "aggregation/output/operator.h"
#include "aggregation/wire/tensor.h"

namespace sheaf {
namespace {

// Rows whose slots are looked up together: by one thread, and by each of several.
constexpr size_t kBatch = 256;
constexpr size_t kPartBatch = 1024;
// Rows that several threads fold before they wait for each other.
constexpr size_t kShared = 16 * kPartBatch;
// Fewer bytes are folded by the time that another thread has woken up.
constexpr int64_t kSharedBytesMin = 128 << 10;

}  // namespace

RowStore::RowStore(const OutputLayout& layout)
    : layout_(layout),
      index_(static_cast<uint64_t>(layout.num_coordinates)),
      columns_(layout, /*is_scattered=*/false, nullptr) {
  // The result takes more room, sooner or later; but for rows of no values, of which there may be any number.
  if (layout.releases_dense && layout.width > 0) index_.MakeTable();
}

int64_t RowStore::row_bytes() const { return layout_.width * DTypeSize(layout_.dtype); }

void RowStore::Find(std::span<const int64_t> keys, uint32_t* slots) {
  index_.FindOrAdd(keys.data(), static_cast<int>(keys.size()), slots);
  if (index_.size() > columns_.num_slots) columns_.Resize(index_.size());
}

template <typename Visit>
void RowStore::ForEachRows(CheckedValues values, size_t rows_max, Visit visit) {
  for (const CheckedValue* const value : values) {
    Rows rows{.weight = layout_.op->is_weighted() ? value->weight : 1.0f, .fold = ++num_folds_};
    for (size_t begin = 0; begin < value->keys.size(); begin += rows_max) {
      rows.keys = value->keys.subspan(begin, std::min(rows_max, value->keys.size() - begin));
      rows.values = value->data.data() + static_cast<int64_t>(begin) * row_bytes();
      visit(rows);
    }
  }
}

void RowStore::Accumulate(CheckedValues values, ParallelFor& parallel) {
  size_t num_rows = 0;
  for (const CheckedValue* const value : values) num_rows += value->keys.size();
  const int num_parts = std::min(parallel.num_threads(), kLanes);
  if (num_parts == 1 || !columns_.cells->has_lanes() ||
      static_cast<int64_t>(num_rows) * row_bytes() < kSharedBytesMin) {
    return FoldOneByOne(values);
  }
  std::vector<uint32_t> slots(std::min(num_rows, kShared));
  std::vector<Rows> shared;
  size_t num_shared = 0;
  ForEachRows(values, kPartBatch, [&](Rows rows) {
    if (num_shared + rows.keys.size() > slots.size()) {
      FoldInParts(shared, num_parts, parallel);
      shared.clear();
      num_shared = 0;
    }
    rows.slots = std::span(slots).subspan(num_shared, rows.keys.size());
    num_shared += rows.keys.size();
    shared.push_back(rows);
  });
  FoldInParts(shared, num_parts, parallel);
}

void RowStore::FoldOneByOne(CheckedValues values) {
  ForEachRows(values, kBatch, [this](Rows rows) {
    uint32_t slots[kBatch];
    rows.slots = {slots, rows.keys.size()};
    Find(rows.keys, slots);
    Fold(rows, {});
    Count(rows, rows.slots);
  });
}

// Only AddNew changes the index and the columns' size, alone; beside it, slots of one lane are touched by one thread.
void RowStore::FoldInParts(std::span<const Rows> all, int num_parts, ParallelFor& parallel) {
  parallel.Run(static_cast<int>(all.size()), [this, all](int i) {
    const Rows& rows = all[static_cast<size_t>(i)];
    index_.Find(rows.keys.data(), static_cast<int>(rows.keys.size()), rows.slots.data());
  });
  int64_t num_rows = 0;
  for (const Rows& rows : all) {
    AddNew(rows);
    num_rows += static_cast<int64_t>(rows.keys.size());
  }
  columns_.cells->ReserveRows(num_rows);
  parallel.Run(num_parts, [this, all, num_parts](int part) {
    for (const Rows& rows : all) Fold(rows, {.number = part, .of = num_parts});
  });
  // Sums of weights have no lanes.
  if (columns_.weights == nullptr) return;
  for (const Rows& rows : all) Count(rows, rows.slots);
}

void RowStore::AddNew(const Rows& rows) {
  int64_t keys[kPartBatch];
  uint32_t positions[kPartBatch], slots[kPartBatch];
  size_t n = 0;
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    // Written whether it is new or not: nothing could predict which ones are.
    keys[n] = rows.keys[i];
    positions[n] = static_cast<uint32_t>(i);
    n += rows.slots[i] == kNoSlot ? 1 : 0;
  }
  Find({keys, n}, slots);
  for (size_t i = 0; i < n; ++i) rows.slots[positions[i]] = slots[i];
}

void RowStore::Fold(const Rows& rows, Part part) {
  RowBatch batch{.rows = rows.slots, .width = layout_.width, .values = rows.values, .row_bytes = row_bytes()};
  if (part.of == 1) return columns_.cells->AddRows(batch, rows.weight);
  uint32_t slots[kPartBatch], positions[kPartBatch];
  size_t n = 0;
  for (size_t i = 0; i < rows.slots.size(); ++i) {
    slots[n] = rows.slots[i];
    positions[n] = static_cast<uint32_t>(i);
    n += LaneOf(rows.slots[i]) * part.of / kLanes == part.number ? 1 : 0;
  }
  batch.rows = {slots, n};
  batch.positions = {positions, n};
  batch.part = part.number;
  columns_.cells->AddRows(batch, rows.weight);
  if (columns_.weights == nullptr) Count(rows, batch.rows);
}

void RowStore::Count(const Rows& rows, std::span<const uint32_t> slots) {
  if (!columns_.is_counted) return;
  for (const uint32_t slot : slots) {
    if (!columns_.Touch(slot, rows.fold) || columns_.weights == nullptr) continue;
    const double weight = rows.weight;
    columns_.weights->Add(slot, reinterpret_cast<const char*>(&weight), 1, 1.0f);
  }
}

SparseStore::Place RowStore::FindOrAdd(int64_t key) {
  uint32_t slot = 0;
  Find({&key, 1}, &slot);
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
