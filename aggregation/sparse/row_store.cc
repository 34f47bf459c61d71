#include "aggregation/sparse/row_store.h"

#include <algorithm>
#include <utility>

#include "aggregation/output/operator.h"
#include "aggregation/wire/tensor.h"

namespace sheaf {
namespace {

// Rows that one thread looks up and folds together; and those that several do before they wait for each other.
constexpr size_t kBatch = 256;
constexpr size_t kStep = 4 << 10;
// Who looks rows up has less time to fold.
constexpr int kPartsPerThread = 2;
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

void RowStore::MakeRoom() {
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
  if (parallel.num_threads() == 1 || !columns_.cells->has_lanes() ||
      static_cast<int64_t>(num_rows) * row_bytes() < kSharedBytesMin) {
    return FoldOneByOne(values);
  }
  std::vector<Rows> all;
  ForEachRows(values, kStep, [&all](const Rows& rows) { all.push_back(rows); });
  FoldInSteps(all, parallel);
}

void RowStore::FoldOneByOne(CheckedValues values) {
  ForEachRows(values, kBatch, [this](Rows rows) {
    uint32_t slots[kBatch];
    rows.slots = {slots, rows.keys.size()};
    LookUp({&rows, 1});
    MakeRoom();
    Fold(rows, {});
    Count(rows, rows.slots);
  });
}

// One thread at most has the index, and one at most the rows of a lane; columns grow when there is only one.
void RowStore::FoldInSteps(std::span<Rows> all, ParallelFor& parallel) {
  const int num_parts = std::min(kPartsPerThread * parallel.num_threads(), kLanes);
  std::vector<uint32_t> slots(kStep), next_slots(kStep);
  std::span<Rows> step = TakeStep(all, slots);
  LookUp(step);
  while (!step.empty()) {
    MakeRoom();
    int64_t num_rows = 0;
    for (const Rows& rows : step) num_rows += static_cast<int64_t>(rows.keys.size());
    columns_.cells->ReserveRows(num_rows);
    const std::span<Rows> next = TakeStep(all, next_slots);
    parallel.Run(1 + num_parts, [this, step, next, num_parts](int i) {
      if (i == 0) return LookUp(next);
      for (const Rows& rows : step) Fold(rows, {.number = i - 1, .of = num_parts});
    });
    // Sums of weights have no lanes.
    if (columns_.weights != nullptr) {
      for (const Rows& rows : step) Count(rows, rows.slots);
    }
    step = next;
    slots.swap(next_slots);
  }
}

auto RowStore::TakeStep(std::span<Rows>& all, std::span<uint32_t> slots) -> std::span<Rows> {
  size_t n = 0;
  for (; n < all.size() && all[n].keys.size() <= slots.size(); ++n) {
    all[n].slots = slots.first(all[n].keys.size());
    slots = slots.subspan(all[n].keys.size());
  }
  const std::span<Rows> step = all.first(n);
  all = all.subspan(n);
  return step;
}

void RowStore::LookUp(std::span<const Rows> step) {
  for (const Rows& rows : step) {
    for (size_t begin = 0; begin < rows.keys.size(); begin += kBatch) {
      const size_t n = std::min(kBatch, rows.keys.size() - begin);
      index_.FindOrAdd(rows.keys.data() + begin, static_cast<int>(n), rows.slots.data() + begin);
    }
  }
}

void RowStore::Fold(const Rows& rows, Part part) {
  RowBatch batch{.rows = rows.slots, .width = layout_.width, .values = rows.values, .row_bytes = row_bytes()};
  if (part.of == 1) return columns_.cells->AddRows(batch, rows.weight);
  uint32_t slots[kStep], positions[kStep];
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
  index_.FindOrAdd(&key, 1, &slot);
  MakeRoom();
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
