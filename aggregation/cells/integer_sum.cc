#include "aggregation/cells/integer_sum.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

using Sum = __int128;
// A worker's sum; 2^27 such sums do not wrap.
constexpr Sum kPartialMax = Sum{1} << 100;

bool FitsInt64(Sum sum) { return sum == static_cast<int64_t>(sum); }

// How many bytes each sum of a chunk takes: 0, 8 or 16.
uint8_t WidthOf(const Sum* sums, int count) {
  if (std::all_of(sums, sums + count, [](Sum sum) { return sum == 0; })) return 0;
  return std::all_of(sums, sums + count, FitsInt64) ? 8 : 16;
}

}  // namespace

template <typename Integer>
void IntegerSum<Integer>::Add(int64_t at, const char* values, int64_t count, float weight) {
  SHEAF_CHECK(weight == 1.0f);
  sums_.ForEachPiece(at, count, [&](Sum* piece, int64_t done, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      Integer value;
      std::memcpy(&value, values + (done + i) * static_cast<int64_t>(sizeof value), sizeof value);
      piece[i] += value;
    }
  });
}

template <typename Integer>
void IntegerSum<Integer>::AddScattered(const uint32_t* cells, const WideValue* values, int count, int) {
  SHEAF_CHECK(sums_.size() <= PagedArray<Sum>::kPage);
  Sum* const into = sums_.data();
  for (int i = 0; i < count; ++i) into[cells[i]] += static_cast<Integer>(values[i]);
}

template <typename Integer>
void IntegerSum<Integer>::AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) {
  const auto& from = dynamic_cast<const IntegerSum&>(other);
  for (int64_t i = 0; i < count; ++i) sums_[at + i] += from.sums_[other_at + i];
}

template <typename Integer>
void IntegerSum<Integer>::WriteChunk(int64_t at, int count, StateWriter& out) const {
  Sum sums[kCellChunk];
  for (int i = 0; i < count; ++i) sums[i] = sums_[at + i];
  const uint8_t width = WidthOf(sums, count);
  out.Put(width);
  if (width == 16) out.PutArray(sums, count);
  if (width == 8) {
    for (int i = 0; i < count; ++i) out.Put(static_cast<int64_t>(sums[i]));
  }
}

template <typename Integer>
absl::Status IntegerSum<Integer>::ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) {
  ASSIGN_OR_RETURN(const uint8_t width, in.Get<uint8_t>());
  Sum sums[kCellChunk] = {};
  if (width == 16) RETURN_IF_ERROR(in.GetArray(sums, count));
  if (width == 8) {
    int64_t narrow[kCellChunk];
    RETURN_IF_ERROR(in.GetArray(narrow, count));
    std::copy_n(narrow, count, sums);
  }
  const bool is_bounded = std::all_of(sums, sums + count, [origin](Sum sum) {
    return origin.source == StateSource::kCheckpoint || (-kPartialMax <= sum && sum <= kPartialMax);
  });
  if (width != WidthOf(sums, count) || !is_bounded) return absl::DataLossError("the state's integers are malformed");
  for (int i = 0; i < count && width != 0; ++i) sums_[at + i] = sums[i];
  return absl::OkStatus();
}

template <typename Integer>
int64_t IntegerSum<Integer>::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  SHEAF_CHECK(divisors.empty(), "integers have no mean");
  for (int64_t i = 0; i < count; ++i) {
    const Sum sum = sums_[at + i];
    if (sum < std::numeric_limits<Integer>::min() || sum > std::numeric_limits<Integer>::max()) return i;
    const Integer value = static_cast<Integer>(sum);
    std::memcpy(values + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
  }
  return count;
}

template class IntegerSum<int32_t>;
template class IntegerSum<int64_t>;
template class IntegerSum<uint64_t>;

}  // namespace sheaf
