// RowRelease: which rows of an output are released, with which values, in the order in which they are offered.
//
//   RowRelease release(layout, divisor);
//   release.Offer(columns, slots, [&](size_t i, const char* row) { ... });   // Calls for each row that is released.
//
// Applies the divisor, min_contributors and drop_zeros, and finds integers that do not fit. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aggregation/output_layout.h"
#include "aggregation/sparse/sparse_block.h"

namespace sheaf {

class RowRelease {
 public:
  // `divisor`: of all rows; nothing if there is none or each row has its own.
  RowRelease(const OutputLayout& layout, std::optional<double> divisor);

  // Calls release(i, row) for each slots[i] that is released. Returns the first i whose integers do not fit and the
  // offset in its row, or nothing.
  struct Misfit {
    size_t row;
    int64_t offset;
  };
  template <typename Release>
  std::optional<Misfit> Offer(const SlotColumns& columns, std::span<const uint32_t> slots, Release release) {
    const bool is_block = PrepareBlock(columns, slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      const uint32_t slot = slots[i];
      if (min_contributors_ > 1 && columns.contributors[slot] < min_contributors_) continue;
      const char* const row = is_block ? block_.data() + static_cast<size_t>(slot) * row_bytes_ : RoundRow(columns, slot);
      if (has_misfits_) {
        if (const std::optional<int64_t> offset = MisfitAt(is_block, slot)) return Misfit{i, *offset};
      }
      if (drops_zeros_ && IsZero(row)) continue;
      release(i, row);
    }
    return std::nullopt;
  }

  size_t row_bytes() const { return row_bytes_; }

 private:
  // Rounds all values of the columns at once, if most of them are asked for.
  bool PrepareBlock(const SlotColumns& columns, size_t num_slots);
  // Rounds one row into row_.
  const char* RoundRow(const SlotColumns& columns, int64_t slot);
  std::optional<int64_t> MisfitAt(bool is_block, uint32_t slot) const;
  // The divisors of `count` slots from `slot` on: none, one, or one each.
  std::span<const double> DivisorsOf(const SlotColumns& columns, int64_t slot, int64_t count);
  bool IsZero(const char* row) const;

  const OutputLayout& layout_;
  const size_t row_bytes_;
  const int64_t min_contributors_;
  const bool drops_zeros_;
  std::optional<double> divisor_;
  std::vector<double> divisors_;
  std::string block_;
  std::string row_;
  // Slots of the block whose integer does not fit; and the offset of the one in row_ that does not.
  bool has_misfits_ = false;
  std::vector<uint32_t> block_misfits_;
  int64_t row_misfit_ = 0;
};

}  // namespace sheaf
