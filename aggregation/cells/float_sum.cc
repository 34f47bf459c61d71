#include "aggregation/cells/float_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "aggregation/cells/float_numbers.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
template <typename Cell, typename Value>
void FloatSum<Cell, Value>::Add(int64_t at, const char* values, int64_t count, float weight) {
  cells_.ForEachPiece(at, count, [&](Cell* __restrict piece, int64_t done, int64_t n) {
    AddNumbers<Cell, Value>(values + done * static_cast<int64_t>(sizeof(Value)), n, weight, piece);
  });
}

template <typename Cell, typename Value>
void FloatSum<Cell, Value>::AddScattered(const uint32_t* cells, const WideValue* values, int count, int) {
  SHEAF_CHECK(cells_.size() <= PagedArray<Cell>::kPage);
  Cell* const into = cells_.data();
  for (int i = 0; i < count; ++i) into[cells[i]] += static_cast<Cell>(std::bit_cast<double>(values[i]));
}

template <typename Cell, typename Value>
void FloatSum<Cell, Value>::Prefetch(int64_t at, int64_t count) const {
  constexpr int64_t kLine = 64 / sizeof(Cell);
  // The rest of a long row is fetched by the stream prefetcher.
  constexpr int64_t kLines = 8;
  const int64_t end = at + std::min(count, kLines * kLine);
  for (int64_t cell = at; cell < end; cell += kLine) __builtin_prefetch(&cells_[cell], 1);
}

template <typename Cell, typename Value>
void FloatSum<Cell, Value>::AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) {
  const auto& from = dynamic_cast<const FloatSum&>(other);
  for (int64_t i = 0; i < count; ++i) cells_[at + i] += from.cells_[other_at + i];
}

template <typename Cell, typename Value>
void FloatSum<Cell, Value>::AddCells(int64_t at, const Cell* cells, int64_t count) {
  cells_.ForEachPiece(at, count, [cells](Cell* piece, int64_t done, int64_t n) {
    for (int64_t i = 0; i < n; ++i) piece[i] += cells[done + i];
  });
}

template <typename Cell, typename Value>
void FloatSum<Cell, Value>::WriteChunk(int64_t at, int count, StateWriter& out) const {
  Cell chunk[kCellChunk];
  for (int i = 0; i < count; ++i) chunk[i] = CanonicalNan(cells_[at + i]);
  out.PutArray(chunk, count);
}

template <typename Cell, typename Value>
absl::Status FloatSum<Cell, Value>::ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) {
  Cell chunk[kCellChunk];
  RETURN_IF_ERROR(in.GetArray(chunk, count));
  for (int i = 0; i < count; ++i) {
    const Cell canonical = CanonicalNan(chunk[i]);
    // Of the bits: NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (std::memcmp(&canonical, &chunk[i], sizeof canonical) != 0 || (chunk[i] == 0 && std::signbit(chunk[i]))) {
      return absl::DataLossError("the state's sums are malformed");
    }
    if (origin.source == StateSource::kFinitePartialAggregate && !std::isfinite(chunk[i])) {
      return absl::DataLossError("the state holds NaN or infinities; this output takes finite values only");
    }
    cells_[at + i] = chunk[i];
  }
  return absl::OkStatus();
}

template <typename Cell, typename Value>
int64_t FloatSum<Cell, Value>::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  cells_.ForEachPiece(at, count, [&](const Cell* __restrict piece, int64_t done, int64_t n) {
    RoundNumbers(piece, n, divisors.Part(done, n), reinterpret_cast<Value*>(values) + done);
  });
  return count;
}

template class FloatSum<double, float>;
template class FloatSum<double, double>;
template class FloatSum<float, float>;

}  // namespace sheaf
