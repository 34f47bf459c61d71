#include "aggregation/fold_growth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "aggregation/exact/exact_block.h"
#include "aggregation/exact/exact_kernels.h"
#include "aggregation/sparse/sparse_block.h"
#include "aggregation/wire/tensor.h"

namespace sheaf {
namespace {

constexpr int64_t kDigitBytes = sizeof(int64_t);
// To find a coordinate or an integer key; and what a string key takes beside its bytes.
constexpr int64_t kIndexBytes = 16;
// To find a row's cells.
constexpr int64_t kPlaceBytes = 8;
constexpr int64_t kStringKeyBytes = 64;
// A value at a coordinate may open a bin for all cells of its block: so many at most.
constexpr int64_t kBlockCellsMax = int64_t{1} << 19;

// Exponents of numbers: below 2^top, multiples of 2^low.
struct Exponents {
  int top;
  int low;
};

Exponents OfWeight(float weight) {
  int exponent = 0;
  std::frexp(weight, &exponent);
  return {.top = exponent, .low = exponent - std::numeric_limits<float>::digits};
}

// Whether values are added in runs, or so few at once that each is cut by itself.
bool AreSingles(const OutputLayout& layout) { return layout.width < ExactBlock::kFew; }

// Bins that values may open, whatever there is.
int BinsOf(const OutputLayout& layout, Exponents values, Exponents weight) {
  const int top = values.top + weight.top, low = values.low + weight.low;
  const bool is_narrow = layout.dtype == v1::FLOAT32;
  const int value_bits = is_narrow ? std::numeric_limits<float>::digits : std::numeric_limits<double>::digits;
  // Near the ends of the range doubles are cut one by one, too.
  constexpr int kFar = 900;
  const bool is_far = !is_narrow && (top > kFar || low < -kFar);
  if (AreSingles(layout) || is_far) {
    const int weight_bits = layout.op->is_weighted() ? std::numeric_limits<float>::digits : 0;
    return ExactBlock::NewBinsOfSinglesMax(top, low, value_bits + weight_bits);
  }
  const int bins = ExactBlock::NewBinsMax(top, low);
  // The weighted product of a double is added in two parts.
  return !is_narrow && layout.op->is_weighted() ? bins + 2 : bins;
}

constexpr Exponents kAllFloats = {.top = 128, .low = -149}, kAllDoubles = {.top = 1024, .low = -1074};
Exponents AllOf(v1::DType dtype) { return dtype == v1::FLOAT32 ? kAllFloats : kAllDoubles; }

FloatRange Scan(const OutputLayout& layout, const char* values, int n) {
  if (layout.dtype == v1::FLOAT32) return ScanFloats(values, n);
  double wide[ExactBlock::kRunMax];
  std::memcpy(wide, values, static_cast<size_t>(n) * sizeof(double));
  return ScanDoubles(wide, n, std::numeric_limits<double>::digits);
}

// Bins that one run of finite values may open, whatever there is; NaN and infinities are kept elsewhere.
int BinsOfRun(const OutputLayout& layout, const FloatRange& range, Exponents weight) {
  if (range.is_all_zero) return 0;
  return BinsOf(layout, range.is_finite ? Exponents{.top = range.top, .low = range.low} : AllOf(layout.dtype), weight);
}

Exponents WeightExponents(const OutputLayout& layout, const CheckedValue& value) {
  return layout.op->is_weighted() ? OfWeight(value.weight) : Exponents{.top = 0, .low = 0};
}

int WorstBins(const OutputLayout& layout, const CheckedValue& value) {
  return BinsOf(layout, AllOf(layout.dtype), WeightExponents(layout, value));
}

int64_t NumValues(const OutputLayout& layout, const CheckedValue& value) {
  return static_cast<int64_t>(value.data.size()) / DTypeSize(layout.dtype);
}

// Bins that the runs of some values may open: all together where each run of a dense output has blocks of its own; the
// most that one run opens where those of rows may share theirs.
int64_t JoinBins(const OutputLayout& layout, int64_t some, int64_t others) {
  return layout.op->operand == Operand::kDense ? some + others : std::max(some, others);
}

int64_t CountBins(const OutputLayout& layout, const CheckedValue& value, int64_t begin, int64_t end) {
  const Exponents weight = WeightExponents(layout, value);
  const int64_t size = DTypeSize(layout.dtype);
  int64_t bins = 0;
  for (int64_t at = begin; at < end; at += ExactBlock::kRunMax) {
    const int n = static_cast<int>(std::min<int64_t>(ExactBlock::kRunMax, end - at));
    const FloatRange range = value.ranges.empty() ? Scan(layout, value.data.data() + at * size, n)
                                                  : value.ranges[static_cast<size_t>(at / ExactBlock::kRunMax)];
    bins = JoinBins(layout, bins, BinsOfRun(layout, range, weight));
  }
  return bins;
}

int64_t CountedBins(const OutputLayout& layout, const CheckedValue& value) {
  if (value.bins) return *value.bins;
  InlineFor one_by_one;
  return CountBins(layout, value, one_by_one);
}

int64_t DenseGrowth(const OutputLayout& layout, const CheckedValue& value, GrowthDetail detail) {
  // All other cells are there from the beginning.
  if (!layout.is_exact_sum()) return 0;
  const int64_t block = std::min<int64_t>(ExactBlock::kRunMax, layout.width);
  if (detail == GrowthDetail::kWorst) {
    return (layout.width + block) * kDigitBytes * WorstBins(layout, value);
  }
  return CountedBins(layout, value) * block * kDigitBytes;
}

int64_t KeyBytes(const CheckedValue& value) {
  if (value.string_keys == nullptr) return 0;
  int64_t bytes = 0;
  for (const std::string& key : *value.string_keys) bytes += static_cast<int64_t>(key.size()) + kStringKeyBytes;
  return bytes;
}

// Every row may be at a coordinate or key that nobody touched so far; or at one that was, whose block then may need
// other bins, for all of its cells.
int64_t RowsGrowth(const OutputLayout& layout, const CheckedValue& value, int64_t held_bytes, GrowthDetail detail) {
  const bool is_string = layout.key_type == v1::STRING_KEYS;
  const int64_t num_rows = is_string ? value.string_keys->size() : static_cast<int64_t>(value.keys.size());
  if (num_rows == 0) return 0;
  const int64_t slot_bytes =
      kIndexBytes + kPlaceBytes + (layout.op->operand == Operand::kSparse ? SlotBytes(layout) : 0);
  const int64_t fixed = num_rows * slot_bytes + (is_string ? KeyBytes(value) : 0);
  if (!layout.is_exact_sum()) return fixed + num_rows * layout.width * CellBytes(layout.cell_type());
  const int64_t bins = detail == GrowthDetail::kWorst ? WorstBins(layout, value) : CountedBins(layout, value);
  const bool is_in_rows = layout.width != 1 || layout.op->operand == Operand::kKeyed;
  const int64_t block_cells = is_in_rows ? layout.width + int64_t{2} * ExactBlock::kRunMax : kBlockCellsMax;
  // No more cells are there to be widened than what is held has bytes for.
  const int64_t blocks_bytes =
      num_rows > held_bytes / (block_cells * kDigitBytes) ? held_bytes : num_rows * block_cells * kDigitBytes;
  // A row is kept as it came, or as digits of one bin, and may leave that behind when it opens bins of a block.
  const int64_t rows_bytes = num_rows * layout.width * kDigitBytes;
  return fixed + rows_bytes + bins * (rows_bytes + ExactBlock::kRunMax * kDigitBytes + blocks_bytes);
}

}  // namespace

int64_t CountBins(const OutputLayout& layout, const CheckedValue& value, ParallelFor& parallel) {
  // Whole runs.
  constexpr int64_t kPart = int64_t{256} * ExactBlock::kRunMax;
  if (!layout.is_exact_sum()) return 0;
  const int64_t num_values = NumValues(layout, value);
  std::vector<int64_t> bins(static_cast<size_t>(num_values / kPart + 1));
  RunInParts(parallel, num_values, kPart, [&](int64_t begin, int64_t end) {
    bins[static_cast<size_t>(begin / kPart)] = CountBins(layout, value, begin, end);
  });
  return std::accumulate(bins.begin(), bins.end(), int64_t{0},
                         [&](int64_t some, int64_t others) { return JoinBins(layout, some, others); });
}

int64_t FoldGrowth(const OutputLayout& layout, const CheckedValue& value, int64_t held_bytes, GrowthDetail detail) {
  if (layout.op->operand == Operand::kDense) return DenseGrowth(layout, value, detail);
  return RowsGrowth(layout, value, held_bytes, detail);
}

int64_t FoldGrowth(const OutputAccumulator& partial, int64_t held_bytes) {
  const OutputLayout& layout = partial.layout();
  // A row that is kept as it came, or as digits of one bin, is no more than that of the partial, and may be left
  // behind.
  const int64_t added = partial.memory_bytes() * (layout.width == 1 ? 1 : 2);
  if (layout.op->operand == Operand::kDense) return layout.is_exact_sum() ? added : 0;
  return layout.is_exact_sum() ? added + partial.most_bins() * held_bytes : added;
}

}  // namespace sheaf
