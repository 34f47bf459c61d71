// FloatRows: FloatSum's running sums in rows of `width` cells. The bits are FloatSum's.
//
//   nothing    no addend
//   first      one addend, not weighted: its bytes, as they came; where a cell is wider than a value
//   sum        a cell per element
//
// Nothing is cleared for a row before its first addend, which is stored and not added. See ExactRows for the reason.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aggregation/cells/cell_vector.h"
#include "aggregation/memory/row_pool.h"

namespace sheaf {

// Cell: double or float. Value: the dtype's.
template <typename Cell, typename Value>
class FloatRows final : public CellVector {
 public:
  explicit FloatRows(int width);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()) * width_; }
  // Of whole rows; and so are Add and AddRows.
  void Resize(int64_t size) override;
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddRows(const RowBatch& batch, float weight) override;
  void ReserveRows(int64_t num_rows) override;
  // Rows are not scattered.
  void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) override;
  void Prefetch(int64_t at, int64_t count) const override;
  // `other` is a FloatSum, or FloatRows.
  void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) override;
  void AddTo(CellVector& to, int64_t to_at, int64_t at, int64_t count) const override;
  void Clear() override;
  void WriteChunk(int64_t at, int count, StateWriter& out) const override;
  absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const override;
  int64_t RoundRows(const RoundedRows& batch, const ExactDivisors& divisors) const override;
  int64_t memory_bytes() const override;

 private:
  static constexpr bool kKeepsFirsts = sizeof(Cell) > sizeof(Value);

  enum Form : uint32_t { kNothing, kFirst, kSum };
  struct Row {
    uint32_t form : 2 = kNothing;
    // Its number among those of its form.
    uint32_t place : RowPool::kRowBits = 0;
  };

  // Of one thread, of those that add rows at once.
  struct alignas(64) Part {
    RowPool::Places firsts;
    RowPool::Places sums;
  };

  [[gnu::always_inline]] void AddRow(Row& row, const char* values, float weight, Part& part);
  // Makes it a sum; returns its cells.
  Cell* Widen(Row& row, Part& part);
  void RoundRow(const Row& row, int64_t offset, int64_t count, const ExactDivisors& divisors, char* values) const;
  // Adds cells of a sum.
  void AddCells(int64_t at, const Cell* cells, int64_t count);
  // Inline as RowPool::Prefetch.
  [[gnu::always_inline]] void PrefetchRow(const Row& row) const;
  // Of the rows that come after rows[i].
  [[gnu::always_inline]] void PrefetchAhead(std::span<const uint32_t> rows, size_t i) const;
  const Value* FirstOf(const Row& row) const { return reinterpret_cast<const Value*>(firsts_.row(row.place)); }
  Cell* SumOf(const Row& row) { return reinterpret_cast<Cell*>(sums_.row(row.place)); }
  const Cell* SumOf(const Row& row) const { return reinterpret_cast<const Cell*>(sums_.row(row.place)); }
  // Calls visit(number of the row, offset in it, offset in the run, count) for each piece of a run that lies in one
  // row.
  template <typename Visit>
  void ForEachPiece(int64_t at, int64_t count, Visit visit) const;

  const int width_;
  std::vector<Row> rows_;
  RowPool firsts_;
  RowPool sums_;
  std::array<Part, kLanes> parts_;
};

extern template class FloatRows<double, float>;
extern template class FloatRows<double, double>;
extern template class FloatRows<float, float>;

}  // namespace sheaf
