#include "aggregation/integer_sum.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/status_macros.h"

namespace sheaf {
namespace {

using Sum = unsigned __int128;
constexpr int kChunk = 1024;
// A worker's sum; 2^27 such sums do not wrap.
constexpr __int128 kPartialMax = __int128{1} << 100;

// Calls visit with a value of the C++ type of an integer dtype.
template <typename Visit>
auto WithType(v1::DType dtype, Visit visit) {
  if (dtype == v1::INT32) return visit(int32_t{});
  if (dtype == v1::INT64) return visit(int64_t{});
  return visit(uint64_t{});
}

bool FitsInt64(Sum sum) { return static_cast<__int128>(sum) == static_cast<int64_t>(sum); }

// How many bytes each sum of a chunk takes: 0, 8 or 16.
uint8_t WidthOf(const Sum* sums, int count) {
  if (std::all_of(sums, sums + count, [](Sum sum) { return sum == 0; })) return 0;
  return std::all_of(sums, sums + count, FitsInt64) ? 8 : 16;
}

void WriteChunk(const Sum* sums, int count, StateWriter& out) {
  const uint8_t width = WidthOf(sums, count);
  out.Put(width);
  if (width == 16) out.PutArray(sums, count);
  if (width == 8) {
    for (int i = 0; i < count; ++i) out.Put(static_cast<int64_t>(sums[i]));
  }
}

}  // namespace

IntegerSum::IntegerSum(v1::DType dtype) : dtype_(dtype) {
  SHEAF_CHECK(dtype == v1::INT32 || dtype == v1::INT64 || dtype == v1::UINT64);
}

void IntegerSum::Resize(int64_t size) {
  size_ = size;
  blocks_.resize(static_cast<size_t>((size + kBlock - 1) / kBlock));
}

IntegerSum::Sum& IntegerSum::At(int64_t element) {
  std::unique_ptr<Sum[]>& block = blocks_[static_cast<size_t>(element / kBlock)];
  if (block == nullptr) block = std::make_unique<Sum[]>(kBlock);
  return block[static_cast<size_t>(element % kBlock)];
}

IntegerSum::Sum IntegerSum::ValueAt(int64_t element) const {
  const std::unique_ptr<Sum[]>& block = blocks_[static_cast<size_t>(element / kBlock)];
  return block == nullptr ? 0 : block[static_cast<size_t>(element % kBlock)];
}

void IntegerSum::Add(int64_t at, const char* values, int64_t count, float weight) {
  SHEAF_CHECK(weight == 1.0f);
  WithType(dtype_, [&](auto zero) {
    using Integer = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      Integer value;
      std::memcpy(&value, values + i * static_cast<int64_t>(sizeof value), sizeof value);
      At(at + i) += static_cast<Sum>(value);
    }
  });
}

void IntegerSum::AddFrom(int64_t at, const SumVector& other, int64_t other_at, int64_t count) {
  const auto& from = dynamic_cast<const IntegerSum&>(other);
  for (int64_t i = 0; i < count; ++i) At(at + i) += from.ValueAt(other_at + i);
}

void IntegerSum::Write(std::span<const ElementRun> order, StateWriter& out) const {
  std::vector<Sum> chunk;
  chunk.reserve(kChunk);
  const auto flush = [&] {
    if (!chunk.empty()) WriteChunk(chunk.data(), static_cast<int>(chunk.size()), out);
    chunk.clear();
  };
  for (const ElementRun& run : order) {
    for (int64_t i = 0; i < run.count; ++i) {
      chunk.push_back(ValueAt(run.at + i));
      if (chunk.size() == kChunk) flush();
    }
  }
  flush();
}

absl::Status IntegerSum::Read(StateReader& in, StateOrigin origin) {
  for (int64_t at = 0; at < size(); at += kChunk) {
    const int count = static_cast<int>(std::min<int64_t>(kChunk, size() - at));
    ASSIGN_OR_RETURN(const uint8_t width, in.Get<uint8_t>());
    Sum sums[kChunk] = {};
    if (width == 16) RETURN_IF_ERROR(in.GetArray(sums, count));
    if (width == 8) {
      int64_t narrow[kChunk];
      RETURN_IF_ERROR(in.GetArray(narrow, count));
      for (int i = 0; i < count; ++i) sums[i] = static_cast<Sum>(narrow[i]);
    }
    const bool is_bounded = std::all_of(sums, sums + count, [origin](Sum sum) {
      const __int128 value = static_cast<__int128>(sum);
      return origin == StateOrigin::kCheckpoint || (-kPartialMax <= value && value <= kPartialMax);
    });
    if (width != WidthOf(sums, count) || !is_bounded) return absl::DataLossError("the state's integers are malformed");
    for (int i = 0; i < count && width != 0; ++i) At(at + i) = sums[i];
  }
  return absl::OkStatus();
}

int64_t IntegerSum::Round(int64_t at, int64_t count, std::optional<double> divisor, char* values) const {
  SHEAF_CHECK(!divisor.has_value(), "integers have no mean");
  return WithType(dtype_, [&](auto zero) -> int64_t {
    using Integer = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      const __int128 sum = static_cast<__int128>(ValueAt(at + i));
      if (sum < std::numeric_limits<Integer>::min() || sum > std::numeric_limits<Integer>::max()) return i;
      const Integer value = static_cast<Integer>(sum);
      std::memcpy(values + i * static_cast<int64_t>(sizeof value), &value, sizeof value);
    }
    return count;
  });
}

double IntegerSum::RoundToDouble(int64_t at) const { return static_cast<double>(static_cast<__int128>(ValueAt(at))); }

int64_t IntegerSum::memory_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof *this + blocks_.size() * sizeof(blocks_[0]));
  for (const auto& block : blocks_) bytes += block == nullptr ? 0 : kBlock * static_cast<int64_t>(sizeof(Sum));
  return bytes;
}

}  // namespace sheaf
