// ExactRows: exact running sums of floats in rows of `width` cells, each kept in as few bytes as what came to it needs.
//
//   nothing    no addend
//   first      one addend, not weighted: its bytes, as they came
//   window     FLOAT32: one digit per cell, all of one exponent: a bin of an ExactBlock, without the block
//   sum        anything else: a row of an ExactSum
//
//   nothing --> first --> window --> sum         A row only moves to the right, and may leave some out.
//
// Which form a row has depends on what came, and in which order; what it stands for does not: a first stands for its
// addend, a window for the sum of digit * 2^exponent, and nothing is ever rounded on the way from one to the other. So
// sums, quotients and serialised states are those of ExactSum, bit by bit.
//
// Most rows that a federated round of an embedding table touches are touched by one or two clients. A first takes half
// the bytes of a window, and nothing is computed for it. Forms lie apart, each in a RowPool: a row that moves leaves
// its place to the next one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aggregation/cells/cell_vector.h"
#include "aggregation/cells/exact_sum.h"
#include "aggregation/exact/exact_block.h"
#include "aggregation/memory/row_pool.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

class ExactRows final : public CellVector {
 public:
  // dtype is FLOAT32 or FLOAT64; ExactBlock::kFew <= width <= ExactBlock::kRunMax.
  ExactRows(v1::DType dtype, int width);

  int64_t size() const override { return static_cast<int64_t>(rows_.size()) * width_; }
  // Of whole rows; and so are Add and AddRows.
  void Resize(int64_t size) override;
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddRows(const RowBatch& batch, float weight) override;
  void ReserveRows(int64_t num_rows) override;
  // Rows are not scattered.
  void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) override;
  void Prefetch(int64_t at, int64_t count) const override;
  // `other` is an ExactSum, or ExactRows.
  void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) override;
  void AddTo(CellVector& to, int64_t to_at, int64_t at, int64_t count) const override;
  void Clear() override;
  void WriteChunk(int64_t at, int count, StateWriter& out) const override;
  absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const override;
  int64_t RoundRows(const RoundedRows& batch, const ExactDivisors& divisors) const override;
  int64_t memory_bytes() const override;
  int most_bins() const override;

 private:
  enum Form : uint32_t { kNothing, kFirst, kWindow, kSum };
  struct Row {
    uint32_t form : 2 = kNothing;
    // Its number among those of its form.
    uint32_t place : RowPool::kRowBits = 0;
    // Of a window: no digit is larger than num_adds * ExactBlock::kOneBinAmount.
    int16_t exponent = 0;
    uint16_t num_adds = 0;
  };
  struct Weight {
    float value;
    ExactBlock::WeightRange range;
  };

  // Rows of one lane.
  struct Sums {
    std::unique_ptr<ExactSum> cells;
    uint32_t num_rows = 0;
  };
  // Of one thread, of those that add rows at once.
  struct alignas(64) Part {
    RowPool::Places firsts;
    RowPool::Places windows;
  };

  static Weight WeightOf(float value) { return {value, ExactBlock::RangeOfWeight(value)}; }
  [[gnu::always_inline]] void AddRow(uint32_t number, const char* values, const Weight& weight, Part& part);
  // False, and nothing is changed, if these values, and the addend that is there, are not for a window.
  bool OpenWindow(Row& row, const char* values, const Weight& weight, Part& part);
  bool AddToWindow(Row& row, const char* values, const Weight& weight);
  // Makes it a sum.
  void Widen(uint32_t number, Part& part);
  // Adds elements of a block.
  void AddBlock(int64_t at, const ExactBlock& from, int from_at, int count);
  // Inline as RowPool::Prefetch.
  [[gnu::always_inline]] void PrefetchRow(uint32_t number) const;
  // Of the rows that come after rows[i].
  [[gnu::always_inline]] void PrefetchAhead(std::span<const uint32_t> rows, size_t i) const;
  ExactBlock Window(const Row& row) const;
  void RoundRow(uint32_t number, int offset, int count, const ExactDivisors& divisors, char* values) const;
  void RoundFirst(const char* first, int count, const ExactDivisors& divisors, char* values) const;
  ExactSum& SumsOf(uint32_t number) { return *sums_[static_cast<size_t>(LaneOf(number))].cells; }
  const ExactSum& SumsOf(uint32_t number) const { return *sums_[static_cast<size_t>(LaneOf(number))].cells; }
  int64_t* DigitsOf(const Row& row) { return reinterpret_cast<int64_t*>(windows_.row(row.place)); }
  const int64_t* DigitsOf(const Row& row) const { return reinterpret_cast<const int64_t*>(windows_.row(row.place)); }
  int64_t SumAt(const Row& row) const { return int64_t{row.place} * width_; }
  // Calls visit(number of the row, offset in it, offset in the run, count) for each piece of a run that lies in one
  // row.
  template <typename Visit>
  void ForEachPiece(int64_t at, int64_t count, Visit visit) const;

  const v1::DType dtype_;
  const int width_;
  const int64_t value_bytes_;
  std::vector<Row> rows_;
  RowPool firsts_;
  RowPool windows_;
  std::array<Sums, kLanes> sums_;
  std::array<Part, kLanes> parts_;
};

}  // namespace sheaf
