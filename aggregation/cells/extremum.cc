#include "aggregation/cells/extremum.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

// +0 for -0, one NaN for all.
template <typename Value>
Value Canonical(Value value) {
  if constexpr (std::is_floating_point_v<Value>) {
    return std::isnan(value) ? std::numeric_limits<Value>::quiet_NaN() : value + Value{0};
  }
  return value;
}

}  // namespace

template <typename Value, bool kIsMax>
Value Extremum<Value, kIsMax>::Identity() {
  using Limits = std::numeric_limits<Value>;
  if constexpr (Limits::has_infinity) return kIsMax ? -Limits::infinity() : Limits::infinity();
  return kIsMax ? Limits::min() : Limits::max();
}

template <typename Value, bool kIsMax>
Value Extremum<Value, kIsMax>::Better(Value a, Value b) {
  b = Canonical(b);
  // False if `a` is NaN; true for a NaN `b` only by the second test.
  const bool is_better = kIsMax ? b > a : b < a;
  return is_better || b != b ? b : a;
}

template <typename Value, bool kIsMax>
void Extremum<Value, kIsMax>::Add(int64_t at, const char* values, int64_t count, float) {
  cells_.ForEachPiece(at, count, [&](Value* __restrict piece, int64_t done, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      Value value;
      std::memcpy(&value, values + (done + i) * static_cast<int64_t>(sizeof value), sizeof value);
      piece[i] = Better(piece[i], value);
    }
  });
}

template <typename Value, bool kIsMax>
void Extremum<Value, kIsMax>::AddScattered(const uint32_t* cells, const WideValue* values, int count, int) {
  for (int i = 0; i < count; ++i) {
    Value value;
    if constexpr (std::is_floating_point_v<Value>) {
      value = static_cast<Value>(std::bit_cast<double>(values[i]));
    } else {
      value = static_cast<Value>(values[i]);
    }
    cells_[cells[i]] = Better(cells_[cells[i]], value);
  }
}

template <typename Value, bool kIsMax>
void Extremum<Value, kIsMax>::AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) {
  const auto& from = dynamic_cast<const Extremum&>(other);
  for (int64_t i = 0; i < count; ++i) cells_[at + i] = Better(cells_[at + i], from.cells_[other_at + i]);
}

template <typename Value, bool kIsMax>
void Extremum<Value, kIsMax>::WriteChunk(int64_t at, int count, StateWriter& out) const {
  cells_.ForEachPiece(at, count, [&out](const Value* piece, int64_t, int64_t n) { out.PutArray(piece, n); });
}

template <typename Value, bool kIsMax>
absl::Status Extremum<Value, kIsMax>::ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) {
  Value chunk[kCellChunk];
  RETURN_IF_ERROR(in.GetArray(chunk, count));
  for (int i = 0; i < count; ++i) {
    const Value canonical = Canonical(chunk[i]);
    // Of the bits: NOLINTNEXTLINE(bugprone-suspicious-memory-comparison)
    if (std::memcmp(&canonical, &chunk[i], sizeof canonical) != 0) {
      return absl::DataLossError("the state's extremes are malformed");
    }
    if constexpr (std::is_floating_point_v<Value>) {
      if (origin.source == StateSource::kFinitePartialAggregate && !std::isfinite(chunk[i])) {
        return absl::DataLossError("the state holds NaN or infinities; this output takes finite values only");
      }
    }
    cells_[at + i] = chunk[i];
  }
  return absl::OkStatus();
}

template <typename Value, bool kIsMax>
int64_t Extremum<Value, kIsMax>::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  SHEAF_CHECK(divisors.empty(), "extremes have no mean");
  cells_.ForEachPiece(at, count, [&](const Value* piece, int64_t done, int64_t n) {
    std::memcpy(values + done * static_cast<int64_t>(sizeof(Value)), piece, static_cast<size_t>(n) * sizeof(Value));
  });
  return count;
}

template class Extremum<float, false>;
template class Extremum<double, false>;
template class Extremum<int32_t, false>;
template class Extremum<int64_t, false>;
template class Extremum<uint64_t, false>;
template class Extremum<float, true>;
template class Extremum<double, true>;
template class Extremum<int32_t, true>;
template class Extremum<int64_t, true>;
template class Extremum<uint64_t, true>;

}  // namespace sheaf
