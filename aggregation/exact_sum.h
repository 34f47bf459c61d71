// ExactSum: exact running sums of floats (FLOAT32 or FLOAT64), in blocks of neighbouring elements.
//
// The sum is the true sum of all weight * value, rounded once, half to even, when it is released: one correct rounding,
// whatever the order, the grouping into partial aggregates, or the restarts between. See ExactBlock for the arithmetic.
//
// A mean is  round(double(S) / double(W)),  where S is the exact weighted sum and W the exact sum of weights (or the
// count), each rounded once to double, the quotient rounded to double, and that to the output's type. Every step is a
// function of exact sums alone, so means are order-independent too. The three roundings to 53 bits cost a FLOAT32 mean
// 3 * 2^-29 ulp: it is within 0.5001 ulp of the true mean. A FLOAT64 mean, if normal, is within 2.6 ulp; there S may
// overflow to an infinity although the mean would not.
//
// NaN and infinities are kept beside the sums as flags per element, and only where they occur: any NaN, or infinities
// of both signs, give a quiet NaN; else an infinity wins.
#pragma once

#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregation/exact_block.h"
#include "aggregation/sum_vector.h"

namespace sheaf {

class ExactSum final : public SumVector {
 public:
  // dtype is FLOAT32 or FLOAT64. 0 < block_size <= ExactBlock::kSizeMax.
  explicit ExactSum(v1::DType dtype, int block_size = ExactBlock::kSizeMax);

  int64_t size() const override { return size_; }
  void Resize(int64_t size) override;
  void Add(int64_t at, const char* values, int64_t count, float weight) override;
  void AddFrom(int64_t at, const SumVector& other, int64_t other_at, int64_t count) override;
  void Write(std::span<const ElementRun> order, StateWriter& out) const override;
  absl::Status Read(StateReader& in, StateOrigin origin) override;
  int64_t Round(int64_t at, int64_t count, std::optional<double> divisor, char* values) const override;
  double RoundToDouble(int64_t at) const override;
  int64_t memory_bytes() const override;

  bool has_non_finite() const { return !non_finite_.empty(); }

 private:
  // Null until an element of it is touched.
  using BlockPointer = std::unique_ptr<ExactBlock>;

  ExactBlock& BlockAt(int64_t block);
  void AddFinite(int64_t at, const char* values, int64_t count, float weight);
  // Notes NaN and infinities, and adds the rest.
  void AddAny(int64_t at, const char* values, int64_t count, float weight);
  void WriteFlags(std::span<const ElementRun> order, StateWriter& out) const;
  absl::Status ReadDigits(StateReader& in, int bin_max);
  absl::Status ReadFlags(StateReader& in);
  template <typename Float>
  void RoundTo(int64_t at, int64_t count, std::optional<double> divisor, char* values) const;
  template <typename Float>
  Float RoundOne(int64_t at) const;

  v1::DType dtype_;
  int block_size_;
  int64_t size_ = 0;
  std::vector<BlockPointer> blocks_;
  absl::flat_hash_map<int64_t, uint8_t> non_finite_;
};

}  // namespace sheaf
