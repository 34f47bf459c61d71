// RowRelease: which rows of an output are released, and with which values.
//
//   RowRelease rows(layout, divisor);
//   if (const auto misfit = rows.Take(columns, slots)) return layout.Misfit(std::to_string(misfit->position));
//   RETURN_IF_ERROR(take(rows.rows()));   // The values of rows.kept(), one row after the other.
//
// Applies the divisor, min_contributors and drop_zeros, and finds sums that do not fit. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "aggregation/output/output_layout.h"
#include "aggregation/sparse/sparse_block.h"

namespace sheaf {

class RowRelease {
 public:
  // `divisor`: of all rows; nothing if there is none or each row has its own.
  RowRelease(const OutputLayout& layout, std::optional<ExactDivisor> divisor);

  // Looks at these slots, and forgets those before. Returns the first whose sums do not fit, as its position and
  // the offset in its row, or nothing.
  struct Misfit {
    size_t position;
    int64_t offset;
  };
  std::optional<Misfit> Take(const SlotColumns& columns, std::span<const uint32_t> slots);

  int64_t num_kept() const { return static_cast<int64_t>(num_kept_); }
  bool is_all_kept() const { return is_all_kept_; }
  // Of those kept; not filled where all are.
  std::span<const uint32_t> kept() const { return kept_; }
  std::string_view rows() const { return {rows_.data(), num_kept_ * row_bytes_}; }
  size_t row_bytes() const { return row_bytes_; }

 private:
  // Of single values, most of which are asked for: all cells are rounded at once.
  template <typename Value>
  std::optional<Misfit> TakeCells(const SlotColumns& columns, std::span<const uint32_t> slots);
  // Of rows that are all kept and have one divisor, or none.
  std::optional<Misfit> TakeAllRows(const SlotColumns& columns, std::span<const uint32_t> slots);
  std::optional<Misfit> TakeRows(const SlotColumns& columns, std::span<const uint32_t> slots);
  bool IsWithheld(const SlotColumns& columns, uint32_t slot) const {
    return min_contributors_ > 1 && columns.contributors[slot] < min_contributors_;
  }
  // The divisors of `count` slots from `slot` on: none, one, or one each.
  ExactDivisors DivisorsOf(const SlotColumns& columns, int64_t slot, int64_t count);
  bool IsZero(const char* row) const;

  const OutputLayout& layout_;
  const size_t row_bytes_;
  const int64_t min_contributors_;
  const bool drops_zeros_;
  std::optional<ExactDivisor> divisor_;
  ExactDivisorColumns divisors_;
  // All cells of the columns, rounded; and those that do not fit.
  std::vector<char> cells_;
  std::vector<uint32_t> misfits_;
  size_t num_kept_ = 0;
  bool is_all_kept_ = false;
  std::vector<uint32_t> kept_;
  std::vector<char> rows_;
};

}  // namespace sheaf
