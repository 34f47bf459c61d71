#include "aggregation/operators/row_release.h"

#include <algorithm>
#include <cstring>

#include "aggregation/exact/exact_kernels.h"
#include "aggregation/wire/tensor.h"

namespace sheaf {

RowRelease::RowRelease(const OutputLayout& layout, std::optional<ExactDivisor> divisor)
    : layout_(layout),
      row_bytes_(static_cast<size_t>(layout.width * DTypeSize(layout.released_dtype()))),
      min_contributors_(layout.min_contributors),
      drops_zeros_(layout.drop_zeros),
      divisor_(divisor) {}

ExactDivisors RowRelease::DivisorsOf(const SlotColumns& columns, int64_t slot, int64_t count) {
  if (divisor_.has_value()) return *divisor_;
  // A slot that nobody touched is not released; it is divided by 1.
  if (layout_.op->divisor == Divisor::kTouchingCount) {
    divisors_.upper.resize(static_cast<size_t>(count));
    divisors_.lower.clear();
    const int64_t* const contributors = columns.contributors.data() + slot;
    if (CountsToDivisors(contributors, count, divisors_.upper.data())) return divisors_;
    divisors_.lower.resize(static_cast<size_t>(count));
    for (size_t i = 0; i < divisors_.upper.size(); ++i) {
      const ExactDivisor divisor = ExactDivisor::OfCount(std::max<int64_t>(contributors[i], 1));
      divisors_.upper[i] = divisor.upper;
      divisors_.lower[i] = divisor.lower;
    }
    return divisors_;
  }
  if (layout_.op->divisor == Divisor::kTouchingWeight) {
    columns.weights->ToDivisors(slot, count, divisors_);
    for (double& divisor : divisors_.upper) {
      if (divisor == 0) divisor = 1;
    }
    return divisors_;
  }
  return {};
}

std::optional<RowRelease::Misfit> RowRelease::Take(const SlotColumns& columns, std::span<const uint32_t> slots) {
  constexpr size_t kWorthwhile = 4;
  kept_.clear();
  num_kept_ = 0;
  is_all_kept_ = min_contributors_ <= 1 && !drops_zeros_;
  if (rows_.size() < slots.size() * row_bytes_) rows_.resize(slots.size() * row_bytes_);
  if (columns.width != 1 || slots.size() * kWorthwhile < static_cast<size_t>(columns.num_slots)) {
    return TakeRows(columns, slots);
  }
  return row_bytes_ == 4 ? TakeCells<uint32_t>(columns, slots) : TakeCells<uint64_t>(columns, slots);
}

template <typename Value>
std::optional<RowRelease::Misfit> RowRelease::TakeCells(const SlotColumns& columns, std::span<const uint32_t> slots) {
  const int64_t n = columns.num_slots;
  if (cells_.size() < static_cast<size_t>(n) * sizeof(Value)) cells_.resize(static_cast<size_t>(n) * sizeof(Value));
  misfits_.clear();
  const ExactDivisors divisors = DivisorsOf(columns, 0, n);
  for (int64_t at = 0; at < n; ++at) {
    // Only integers stop here before the end, and they have no divisors.
    at += columns.cells->Round(at, n - at, divisors, cells_.data() + static_cast<size_t>(at) * sizeof(Value));
    if (at < n) misfits_.push_back(static_cast<uint32_t>(at));
  }
  for (int64_t at = layout_.NumFitting(cells_.data(), n); at < n;) {
    misfits_.push_back(static_cast<uint32_t>(at++));
    at += layout_.NumFitting(cells_.data() + static_cast<size_t>(at) * sizeof(Value), n - at);
  }
  const Value* const cells = reinterpret_cast<const Value*>(cells_.data());
  Value* const rows = reinterpret_cast<Value*>(rows_.data());
  if (is_all_kept_ && misfits_.empty()) {
    for (size_t i = 0; i < slots.size(); ++i) rows[i] = cells[slots[i]];
    num_kept_ = slots.size();
    return std::nullopt;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    const uint32_t slot = slots[i];
    if (IsWithheld(columns, slot)) continue;
    if (std::binary_search(misfits_.begin(), misfits_.end(), slot)) return Misfit{i, 0};
    if (drops_zeros_ && IsZero(reinterpret_cast<const char*>(&cells[slot]))) continue;
    rows[num_kept_++] = cells[slot];
    if (!is_all_kept_) kept_.push_back(static_cast<uint32_t>(i));
  }
  return std::nullopt;
}

std::optional<RowRelease::Misfit> RowRelease::TakeAllRows(const SlotColumns& columns, std::span<const uint32_t> slots) {
  const int64_t width = layout_.width;
  const RoundedRows batch{
      .rows = slots, .width = width, .values = rows_.data(), .row_bytes = static_cast<int64_t>(row_bytes_)};
  const int64_t num_cells = static_cast<int64_t>(slots.size()) * width;
  const int64_t num_rounded =
      columns.cells->RoundRows(batch, divisor_.has_value() ? ExactDivisors(*divisor_) : ExactDivisors());
  const int64_t num_fitting = layout_.NumFitting(rows_.data(), num_rounded);
  if (num_fitting < num_cells) return Misfit{static_cast<size_t>(num_fitting / width), num_fitting % width};
  num_kept_ = slots.size();
  return std::nullopt;
}

std::optional<RowRelease::Misfit> RowRelease::TakeRows(const SlotColumns& columns, std::span<const uint32_t> slots) {
  const bool has_own_divisors =
      layout_.op->divisor == Divisor::kTouchingCount || layout_.op->divisor == Divisor::kTouchingWeight;
  if (is_all_kept_ && !has_own_divisors) return TakeAllRows(columns, slots);
  // Rows lie in the order in which they came: each is far from the one before.
  constexpr size_t kAhead = 8;
  const int64_t width = layout_.width;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kAhead < slots.size()) columns.cells->Prefetch(slots[i + kAhead] * width, width);
    if (IsWithheld(columns, slots[i])) continue;
    char* const row = rows_.data() + num_kept_ * row_bytes_;
    int64_t num_fitting = columns.cells->Round(slots[i] * width, width, DivisorsOf(columns, slots[i], 1), row);
    num_fitting = layout_.NumFitting(row, num_fitting);
    if (num_fitting < width) return Misfit{i, num_fitting};
    if (drops_zeros_ && IsZero(row)) continue;
    ++num_kept_;
    if (!is_all_kept_) kept_.push_back(static_cast<uint32_t>(i));
  }
  return std::nullopt;
}

bool RowRelease::IsZero(const char* row) const {
  const size_t size = static_cast<size_t>(DTypeSize(layout_.released_dtype()));
  const bool is_float = layout_.released_dtype() == v1::FLOAT32 || layout_.released_dtype() == v1::FLOAT64;
  for (size_t i = 0; i < row_bytes_; i += size) {
    uint64_t bits = 0;
    std::memcpy(&bits, row + i, size);
    // Zero has two signs.
    if (is_float) bits &= ~(uint64_t{1} << (8 * size - 1));
    if (bits != 0) return false;
  }
  return true;
}

}  // namespace sheaf
