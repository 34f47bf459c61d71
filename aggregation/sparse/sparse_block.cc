#include "aggregation/sparse/sparse_block.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "aggregation/cells/make_cells.h"
#include "aggregation/output/operator.h"
#include "aggregation/sparse/radix_sort.h"

namespace sheaf {
namespace {

// A touched coordinate of a thin block takes its cells, its key and 4/3 to 8/3 entries of the table; one of a dense
// block its cells. With one 8-byte cell that is about three times as much.
constexpr int64_t kThinCost = 3;
// Above this, a dense block would be no part of any cache.
constexpr uint64_t kDenseRangeMax = uint64_t{1} << 19;
constexpr uint64_t kAlwaysDense = 1024;

CellType WeightType(v1::Numerics numerics) {
  return {.reduction = Reduction::kSum, .dtype = v1::FLOAT64, .numerics = numerics == v1::EXACT ? v1::EXACT : v1::F64};
}

bool HasWeights(const OutputLayout& layout) { return layout.op->divisor == Divisor::kTouchingWeight; }

bool IsCounted(const OutputLayout& layout) { return layout.counts_contributors() || HasWeights(layout); }

}  // namespace

int64_t SlotBytes(const OutputLayout& layout) {
  constexpr int64_t kCounts = sizeof(SlotColumns::contributors[0]) + sizeof(SlotColumns::newest_folds[0]);
  return (HasWeights(layout) ? CellBytes(WeightType(layout.numerics)) : 0) + (IsCounted(layout) ? kCounts : 0);
}

SlotColumns::SlotColumns(const OutputLayout& layout, bool is_scattered, ZeroedPool* pool)
    : width(layout.width),
      cells(MakeCells(
          layout.cell_type(),
          {.size_hint = std::nullopt, .row_width = layout.width, .is_scattered = is_scattered, .pool = pool})),
      is_counted(IsCounted(layout)) {
  if (!HasWeights(layout)) return;
  weights = MakeCells(WeightType(layout.numerics), {.size_hint = std::nullopt, .is_scattered = true, .pool = pool});
}

void SlotColumns::Resize(int64_t new_num_slots) {
  num_slots = new_num_slots;
  cells->Resize(num_slots * width);
  if (weights != nullptr) weights->Resize(num_slots);
  if (!is_counted) return;
  contributors.resize(static_cast<size_t>(num_slots));
  newest_folds.resize(static_cast<size_t>(num_slots));
}

void SlotColumns::AddFrom(int64_t slot, const SlotColumns& other, int64_t other_slot) {
  other.cells->AddTo(*cells, slot * width, other_slot * width, width);
  if (weights != nullptr) weights->AddFrom(slot, *other.weights, other_slot, 1);
  if (!is_counted) return;
  contributors[static_cast<size_t>(slot)] += other.contributors[static_cast<size_t>(other_slot)];
}

int64_t SlotColumns::memory_bytes() const {
  return cells->memory_bytes() + (weights == nullptr ? 0 : weights->memory_bytes()) +
         static_cast<int64_t>(contributors.capacity() * sizeof(int64_t) + newest_folds.capacity() * sizeof(uint32_t));
}

template <typename Offset>
SparseBlock<Offset>::SparseBlock(const OutputLayout& layout, uint64_t range, bool is_scattered, ZeroedPool* pool)
    : layout_(layout),
      range_(range),
      is_scattered_(is_scattered),
      pool_(pool),
      columns_(std::make_unique<SlotColumns>(layout, is_scattered, nullptr)) {}

template <typename Offset>
bool SparseBlock<Offset>::ShouldBeDense(int64_t more) const {
  if (is_dense_ || range_ > kDenseRangeMax) return false;
  return range_ <= kAlwaysDense || static_cast<uint64_t>(kThinCost * (index_.size() + more)) > range_;
}

template <typename Offset>
void SparseBlock<Offset>::MakeDense() {
  // The slot of a coordinate is its offset from now on. AddFrom takes the values and the contributors along, and what
  // says that the newest of these touched it already goes beside.
  auto columns = std::make_unique<SlotColumns>(layout_, is_scattered_, pool_);
  columns->Resize(static_cast<int64_t>(range_));
  touched_.assign((range_ + 63) / 64, 0);
  for (int64_t slot = 0; slot < index_.size(); ++slot) {
    const uint64_t offset = index_.key(slot);
    touched_[offset / 64] |= uint64_t{1} << (offset % 64);
    columns->AddFrom(static_cast<int64_t>(offset), *columns_, slot);
    if (columns->is_counted) columns->newest_folds[offset] = columns_->newest_folds[static_cast<size_t>(slot)];
  }
  columns_ = std::move(columns);
  index_ = SlotIndex<Offset>();
  is_dense_ = true;
}

template <typename Offset>
void SparseBlock<Offset>::Reserve(int64_t more) {
  if (!is_dense_) index_.Reserve(index_.size() + more);
}

template <typename Offset>
void SparseBlock<Offset>::FindOrAdd(const Offset* offsets, int n, uint32_t* slots) {
  if (is_dense_) {
    for (int i = 0; i < n; ++i) {
      slots[i] = static_cast<uint32_t>(offsets[i]);
      touched_[offsets[i] / 64] |= uint64_t{1} << (offsets[i] % 64);
    }
    return;
  }
  index_.FindOrAdd(offsets, n, slots);
  if (index_.size() > columns_->num_slots) columns_->Resize(index_.size());
}

template <typename Offset>
int64_t SparseBlock<Offset>::num_touched() const {
  if (!is_dense_) return index_.size();
  int64_t n = 0;
  for (const uint64_t word : touched_) n += std::popcount(word);
  return n;
}

template <typename Offset>
void SparseBlock<Offset>::Sorted(uint64_t base, RawVector<int64_t>& coordinates, RawVector<uint32_t>& slots) const {
  const size_t n = static_cast<size_t>(num_touched());
  coordinates.resize(n);
  slots.resize(n);
  size_t i = 0;
  if (is_dense_) {
    for (size_t w = 0; w < touched_.size(); ++w) {
      for (uint64_t word = touched_[w]; word != 0; word &= word - 1, ++i) {
        const uint64_t offset = 64 * w + static_cast<uint64_t>(std::countr_zero(word));
        coordinates[i] = static_cast<int64_t>(base + offset);
        slots[i] = static_cast<uint32_t>(offset);
      }
    }
    return;
  }
  std::vector<KeyedSlot<Offset>> order(n);
  for (size_t slot = 0; slot < n; ++slot) {
    order[slot] = {index_.key(static_cast<int64_t>(slot)), static_cast<uint32_t>(slot)};
  }
  SortByKey(order);
  for (const auto& [offset, slot] : order) {
    coordinates[i] = static_cast<int64_t>(base + offset);
    slots[i++] = slot;
  }
}

template <typename Offset>
int64_t SparseBlock<Offset>::memory_bytes() const {
  return static_cast<int64_t>(sizeof *this + touched_.capacity() * sizeof(uint64_t)) + index_.memory_bytes() +
         columns_->memory_bytes();
}

template class SparseBlock<uint32_t>;
template class SparseBlock<uint64_t>;

}  // namespace sheaf
