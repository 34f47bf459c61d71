// ExactSum: exact running sums of floats (FLOAT32 or FLOAT64), in blocks of neighbouring cells.
//
// The sum is the true sum of all weight * value, rounded once, half to even, when it is released: one correct rounding,
// whatever the order, the grouping into partial aggregates, or the restarts between. See ExactBlock for the arithmetic.
//
// A mean is  round(S / W),  where S is the exact weighted sum and W the exact sum of weights (or the count): the true
// mean, rounded once, half to even, whatever the sizes of S and W. So a mean fits although its sum may not, and it does
// not depend on the order either. A negative mean below half of the smallest subnormal is -0.
//
// NaN and infinities are kept beside the sums as flags per cell, and only where they occur: any NaN, or infinities
// of both signs, give a quiet NaN; else an infinity wins.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregation/cells/cell_vector.h"
#include "aggregation/exact/exact_block.h"
#include "aggregation/memory/zeroed_pool.h"
#include "sheaf/v1/tensor.pb.h"

namespace sheaf {

class ExactSum final : public CellVector {
 public:
  // dtype is FLOAT32 or FLOAT64. 0 < block_size <= ExactBlock::kRunMax; or kOneBlock, for cells that are touched one by
  // one: they share their bins. `pool`: as CellUse, for kOneBlock.
  static constexpr int kOneBlock = 0;
  explicit ExactSum(v1::DType dtype, int block_size = ExactBlock::kRunMax, ZeroedPool* pool = nullptr);

  int64_t size() const override { return size_; }
  void Resize(int64_t size) override;
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddScanned(int64_t at, const char* values, int64_t count, float weight,
                  std::span<const FloatRange> ranges) override;
  void AddScattered(const uint32_t* cells, const WideValue* values, int count, int precision) override;
  void Prefetch(int64_t at, int64_t count) const override;
  // Neighbours share their bins, and all share the memory for them.
  bool has_lanes() const override { return false; }
  void AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) override;
  // The same of elements of a block.
  void AddBlock(int64_t at, const ExactBlock& from, int from_at, int count);
  void Clear() override;
  void WriteChunk(int64_t at, int count, StateWriter& out) const override;
  absl::Status ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const override;
  void ToDivisors(int64_t at, int64_t count, ExactDivisorColumns& divisors) const override;
  int64_t memory_bytes() const override;
  int most_bins() const override;

  bool has_non_finite() const { return !non_finite_.empty(); }

 private:
  bool is_one_block() const { return block_size_ == kOneBlock; }
  ExactBlock& BlockAt(int64_t block);
  // Notes NaN and infinities, and adds the rest.
  void AddAny(int64_t at, const char* values, int64_t count, float weight);
  absl::Status ReadDigits(int64_t at, int count, StateReader& in, int bin_max);
  absl::Status ReadFlags(int64_t at, int count, StateReader& in);
  template <typename Float>
  void RoundTo(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const;
  template <typename Visit>
  void ForEachPiece(int64_t at, int64_t count, Visit visit) const;

  v1::DType dtype_;
  int block_size_;
  int64_t size_ = 0;
  ZeroedPool* shared_pool_;
  // Of the digits, but for those of kOneBlock.
  ZeroedPool pool_;
  // Null until a cell of it is touched.
  std::vector<std::unique_ptr<ExactBlock>> blocks_;
  absl::flat_hash_map<int64_t, uint8_t> non_finite_;
};

}  // namespace sheaf
