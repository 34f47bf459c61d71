#include "aggregation/cells/nonzero_count.h"

#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

template <typename Value>
void CountNonzero(const char* values, int64_t n, int64_t* counts) {
  for (int64_t i = 0; i < n; ++i) {
    Value value;
    std::memcpy(&value, values + i * static_cast<int64_t>(sizeof value), sizeof value);
    counts[i] += value != Value{0} ? 1 : 0;
  }
}

}  // namespace

void NonzeroCount::Add(int64_t at, const char* values, int64_t count, float) {
  counts_.ForEachPiece(at, count, [&](int64_t* piece, int64_t done, int64_t n) {
    switch (dtype_) {
      case v1::FLOAT32:
        return CountNonzero<float>(values + 4 * done, n, piece);
      case v1::FLOAT64:
        return CountNonzero<double>(values + 8 * done, n, piece);
      case v1::INT32:
        return CountNonzero<int32_t>(values + 4 * done, n, piece);
      default:
        return CountNonzero<int64_t>(values + 8 * done, n, piece);
    }
  });
}

void NonzeroCount::AddScattered(const uint32_t* cells, const WideValue* values, int count, int) {
  // Of doubles, all bits but the sign's.
  const bool is_float = dtype_ == v1::FLOAT32 || dtype_ == v1::FLOAT64;
  const WideValue mask = is_float ? WideValue{INT64_MAX} : ~WideValue{0};
  for (int i = 0; i < count; ++i) counts_[cells[i]] += (values[i] & mask) != 0 ? 1 : 0;
}

void NonzeroCount::AddFrom(int64_t at, const CellVector& other, int64_t other_at, int64_t count) {
  const auto& from = dynamic_cast<const NonzeroCount&>(other);
  for (int64_t i = 0; i < count; ++i) counts_[at + i] += from.counts_[other_at + i];
}

void NonzeroCount::WriteChunk(int64_t at, int count, StateWriter& out) const {
  counts_.ForEachPiece(at, count, [&out](const int64_t* piece, int64_t, int64_t n) { out.PutArray(piece, n); });
}

absl::Status NonzeroCount::ReadChunk(int64_t at, int count, StateReader& in, StateOrigin origin) {
  int64_t counts[kCellChunk];
  RETURN_IF_ERROR(in.GetArray(counts, count));
  for (int i = 0; i < count; ++i) {
    if (counts[i] < 0 || counts[i] > origin.num_clients) return absl::DataLossError("the state's counts are malformed");
    counts_[at + i] = counts[i];
  }
  return absl::OkStatus();
}

int64_t NonzeroCount::Round(int64_t at, int64_t count, const ExactDivisors& divisors, char* values) const {
  SHEAF_CHECK(divisors.empty(), "counts have no mean");
  counts_.ForEachPiece(at, count, [&](const int64_t* piece, int64_t done, int64_t n) {
    std::memcpy(values + 8 * done, piece, static_cast<size_t>(n) * sizeof(int64_t));
  });
  return count;
}

}  // namespace sheaf
