#include "aggregation/row_release.h"

#include <algorithm>
#include <cstring>

#include "aggregation/operators.h"
#include "aggregation/safetensors.h"

namespace sheaf {

RowRelease::RowRelease(const OutputLayout& layout, std::optional<double> divisor)
    : layout_(layout),
      row_bytes_(static_cast<size_t>(layout.width * DTypeSize(layout.released_dtype()))),
      min_contributors_(layout.min_contributors),
      drops_zeros_(layout.drop_zeros),
      divisor_(divisor),
      row_(row_bytes_, '\0') {}

std::span<const double> RowRelease::DivisorsOf(const SlotColumns& columns, int64_t slot, int64_t count) {
  if (divisor_.has_value()) return {&*divisor_, 1};
  divisors_.resize(static_cast<size_t>(count));
  if (layout_.op->divisor == Divisor::kTouchingCount) {
    for (int64_t i = 0; i < count; ++i) {
      divisors_[static_cast<size_t>(i)] = static_cast<double>(columns.contributors[static_cast<size_t>(slot + i)]);
    }
    return divisors_;
  }
  if (layout_.op->divisor == Divisor::kTouchingWeight) {
    columns.weights->Round(slot, count, {}, reinterpret_cast<char*>(divisors_.data()));
    return divisors_;
  }
  return {};
}

bool RowRelease::PrepareBlock(const SlotColumns& columns, size_t num_slots) {
  constexpr size_t kWorthwhile = 4;
  has_misfits_ = false;
  block_misfits_.clear();
  if (columns.width != 1 || num_slots * kWorthwhile < static_cast<size_t>(columns.num_slots)) return false;
  const int64_t n = columns.num_slots;
  block_.resize(static_cast<size_t>(n) * row_bytes_);
  const std::span<const double> divisors = DivisorsOf(columns, 0, n);
  for (int64_t at = 0; at < n; ++at) {
    // Only integers stop before the end, and they have no divisors.
    at += columns.cells->Round(at, n - at, divisors, block_.data() + static_cast<size_t>(at) * row_bytes_);
    if (at < n) block_misfits_.push_back(static_cast<uint32_t>(at));
  }
  has_misfits_ = !block_misfits_.empty();
  return true;
}

const char* RowRelease::RoundRow(const SlotColumns& columns, int64_t slot) {
  row_misfit_ = columns.cells->Round(slot * layout_.width, layout_.width, DivisorsOf(columns, slot, 1), row_.data());
  has_misfits_ = row_misfit_ < layout_.width;
  return row_.data();
}

std::optional<int64_t> RowRelease::MisfitAt(bool is_block, uint32_t slot) const {
  if (!is_block) return row_misfit_;
  if (std::binary_search(block_misfits_.begin(), block_misfits_.end(), slot)) return 0;
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
