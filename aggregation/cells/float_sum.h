// FloatSum: running sums of floats in one IEEE number per cell, F64 or F32: for memory, where EXACT is not needed.
//
// The bits depend on the order of arrival. Of n addends w_i * v_i, whatever the order and the grouping, the sum is
// within 1.01 * n * u * sum |w_i * v_i| of the true one, with u = 2^-53 for F64 and 2^-23 for F32 (product and addition
// each round there), before it is rounded to the output's type; as long as nothing overflows (Higham, Accuracy and
// Stability of Numerical Algorithms, 2nd ed., section 4.2). Products with weights may underflow, which adds at most
// n * eta, with eta = 2^-1075 for F64 and 2^-150 for F32. A cell that overflows is an infinity from then on.
#pragma once

#include "aggregation/cells/cell_vector.h"
#include "aggregation/memory/paged_array.h"

namespace sheaf {

// Cell: double or float. Value: the dtype's.
template <typename Cell, typename Value>
class FloatSum final : public CellVector {
 public:
  // `pool`: as CellUse.
  explicit FloatSum(ZeroedPool* pool) : cells_(pool) {}

  int64_t size() const override { return cells_.size(); }
  void Resize(int64_t size) override { cells_.Resize(size, 0); }
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) override;
  void Prefetch(int64_t at, int64_t count) const override;
  void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) override;
  // The same of cells that are no vector's.
  void AddCells(int64_t at, const Cell* cells, int64_t count);
  Cell cell(int64_t at) const { return cells_[at]; }
  void Clear() override { cells_.Fill(0); }
  void WriteChunk(int64_t at, int count, StateWriter& out) const override;
  absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const override;
  void ToDivisors(int64_t at, int64_t count, ExactDivisorColumns& divisors) const override {
    divisors.upper.resize(static_cast<size_t>(count));
    divisors.lower.clear();
    divisors.whole.clear();
    for (int64_t i = 0; i < count; ++i) divisors.upper[static_cast<size_t>(i)] = static_cast<double>(cells_[at + i]);
  }
  int64_t memory_bytes() const override { return static_cast<int64_t>(sizeof *this) + cells_.memory_bytes(); }

 private:
  PagedArray<Cell> cells_;
};

extern template class FloatSum<double, float>;
extern template class FloatSum<double, double>;
extern template class FloatSum<float, float>;

}  // namespace sheaf
