#include "aggregation/exact_block.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "aggregation/exact_kernels.h"
#include "aggregation/rounding.h"
#include "base/check.h"

namespace sheaf {
namespace {

constexpr int kBits = 32;
constexpr int64_t kHalf = int64_t{1} << (kBits - 1);
// One call adds at most 2^48 + 1 to a digit, or 2^32 for each of 1024 terms.
constexpr int kTopBits = 48;
constexpr int64_t kLoadMax = int64_t{1} << 62;
constexpr int64_t kRoomy = int64_t{1} << 61;
// Below this many elements, cutting one by one beats setting up the loops.
constexpr int kFewFloats = 8;

constexpr int FloorDiv(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
constexpr int CeilDiv(int a, int b) { return -FloorDiv(-a, b); }

// weight = odd * 2^low, and weight <= 2^top.
struct WeightRange {
  uint32_t mantissa;
  int low;
  int top;
};

WeightRange Decompose(float weight) {
  int exponent = 0;
  const float fraction = std::frexp(weight, &exponent);
  uint32_t mantissa = static_cast<uint32_t>(std::ldexp(fraction, 24));
  const int zeros = std::countr_zero(mantissa);
  mantissa >>= zeros;
  return {.mantissa = mantissa, .low = exponent - 24 + zeros, .top = mantissa == 1 ? exponent - 1 : exponent};
}

}  // namespace

void ExactBlock::AddFloats(int at, const char* values, int n, float weight) {
  MakeRoom();
  const WeightRange w = Decompose(weight);
  if (n < kFewFloats) {
    for (int i = 0; i < n; ++i) {
      uint32_t bits;
      std::memcpy(&bits, values + 4 * static_cast<ptrdiff_t>(i), sizeof bits);
      const uint32_t field = (bits >> 23) & 0xff;
      const uint64_t mantissa = (bits & 0x7fffff) | (field == 0 ? 0u : 0x800000u);
      AddTerm(at + i, (bits >> 31) != 0, mantissa * w.mantissa,
              static_cast<int>(std::max<uint32_t>(field, 1)) - 150 + w.low);
    }
    return;
  }
  const FloatRange range = ScanFloats(values, n);
  if (range.is_all_zero) return;
  // The top bin takes up to kTopBits bits; the lowest is that of the lowest bit there can be.
  const int top = CeilDiv(range.top + w.top - kTopBits, kBits);
  const int low = std::min(top, FloorDiv(range.low + w.low, kBits));
  const double scale = std::ldexp(static_cast<double>(weight), -kBits * top);
  constexpr int64_t kTopAmount = (int64_t{1} << kTopBits) + 1;
  if (top == low) return AddToOneBin(values, n, scale, Open(top, kTopAmount) + at);
  if (top == low + 1) {
    int64_t* high_digits = Open(top, kTopAmount) + at;
    return AddToTwoBins(values, n, scale, high_digits, Open(low, kHalf) + at);
  }
  double rest[kSizeMax];
  Scale(values, n, scale, rest);
  for (int index = top; index >= low; --index) {
    if (RoundsToZero(rest, n)) {
      MultiplyByBase(rest, n);
    } else {
      MoveToBin(rest, n, Open(index, index == top ? kTopAmount : kHalf) + at);
    }
  }
}

void ExactBlock::AddDoubles(int at, const char* values, int n, float weight) {
  MakeRoom();
  const WeightRange w = Decompose(weight);
  for (int i = 0; i < n; ++i) {
    uint64_t bits;
    std::memcpy(&bits, values + 8 * static_cast<ptrdiff_t>(i), sizeof bits);
    const uint64_t field = (bits >> 52) & 0x7ff;
    const uint64_t mantissa = (bits & 0xfffffffffffffull) | (field == 0 ? 0ull : 0x10000000000000ull);
    AddTerm(at + i, (bits >> 63) != 0, static_cast<unsigned __int128>(mantissa) * w.mantissa,
            static_cast<int>(std::max<uint64_t>(field, 1)) - 1075 + w.low);
  }
}

void ExactBlock::AddTerm(int at, bool is_negative, unsigned __int128 magnitude, int exponent) {
  int index = FloorDiv(exponent, kBits);
  for (magnitude <<= exponent - kBits * index; magnitude != 0; magnitude >>= kBits, ++index) {
    const int64_t digit = static_cast<uint32_t>(magnitude);
    if (digit != 0) Open(index, int64_t{1} << kBits)[at] += is_negative ? -digit : digit;
  }
}

void ExactBlock::AddBlock(int at, const ExactBlock& other, int other_at, int n) {
  const auto fits = [this](const ExactBlock& from) {
    return std::all_of(from.bins_.begin(), from.bins_.end(),
                       [this](const Bin& bin) { return FindBin(bin.index).load <= kLoadMax - bin.load; });
  };
  if (!fits(other)) {
    Normalise();
    if (!fits(other)) {
      ExactBlock carried(other.size_);
      for (const Bin& bin : other.bins_) {
        AddIntegers(carried.Open(bin.index, bin.load), bin.digits.get(), other.size_);
      }
      carried.Normalise();
      return AddBlock(at, carried, other_at, n);
    }
  }
  for (const Bin& bin : other.bins_) AddIntegers(Open(bin.index, bin.load) + at, bin.digits.get() + other_at, n);
}

void ExactBlock::AddDigits(int at, int index, const int32_t* digits, int n) {
  MakeRoom();
  int64_t* into = Open(index, kHalf) + at;
  for (int i = 0; i < n; ++i) into[i] += digits[i];
}

void ExactBlock::Normalise() {
  for (size_t b = 0; b < bins_.size(); ++b) {
    int64_t carries[kSizeMax];
    int64_t any_carry = 0;
    int64_t* digits = bins_[b].digits.get();
    for (int i = 0; i < size_; ++i) {
      carries[i] = (digits[i] + kHalf) >> kBits;
      digits[i] -= carries[i] * (int64_t{1} << kBits);
      any_carry |= carries[i];
    }
    bins_[b].load = kHalf;
    // The next bin, new or not, stands at b + 1: the loop comes to it next.
    if (any_carry != 0) AddIntegers(Open(bins_[b].index + 1, kHalf), carries, size_);
  }
  std::erase_if(bins_, [this](const Bin& bin) {
    return std::all_of(bin.digits.get(), bin.digits.get() + size_, [](int64_t digit) { return digit == 0; });
  });
}

template <typename Float>
Float ExactBlock::Round(int i) const {
  if (bins_.empty()) return 0;
  const int low = bins_.front().index;
  if (bins_.back().index - low <= 2) {
    // The whole sum fits into 128 bits.
    __int128 sum = 0;
    for (const Bin& bin : bins_)
      sum += static_cast<__int128>(bin.digits[i]) * (__int128{1} << (kBits * (bin.index - low)));
    return RoundInteger<Float>(sum, kBits * low);
  }
  int64_t digits[kBinMax - kBinMin + 2] = {};
  for (const Bin& bin : bins_) digits[bin.index - low] = bin.digits[i];
  const int n = bins_.back().index - low + 2;
  for (int k = 0; k + 1 < n; ++k) {
    const int64_t carry = (digits[k] + kHalf) >> kBits;
    digits[k] -= carry * (int64_t{1} << kBits);
    digits[k + 1] += carry;
  }
  int top = n - 1;
  while (top > 2 && digits[top] == 0) --top;
  // Of what lies below the three leading digits only the sign can matter, because it is less than one of their units.
  int sticky = 0;
  for (int k = top - 3; k >= 0 && sticky == 0; --k) sticky = digits[k] > 0 ? 1 : digits[k] < 0 ? -1 : 0;
  __int128 leading = 0;
  for (int k = top; k >= top - 2; --k) leading = leading * (__int128{1} << kBits) + digits[k];
  return RoundInteger<Float>(2 * leading + sticky, kBits * (low + top - 2) - 1);
}

double ExactBlock::RoundToDouble(int i) const { return Round<double>(i); }
float ExactBlock::RoundToFloat(int i) const { return Round<float>(i); }

int64_t ExactBlock::memory_bytes() const {
  return static_cast<int64_t>(sizeof *this + bins_.size() * (sizeof(Bin) + sizeof(int64_t) * size_));
}

int64_t* ExactBlock::Open(int index, int64_t amount) {
  Bin& bin = FindBin(index);
  bin.load += amount;
  return bin.digits.get();
}

ExactBlock::Bin& ExactBlock::FindBin(int index) {
  size_t b = 0;
  while (b < bins_.size() && bins_[b].index < index) ++b;
  if (b == bins_.size() || bins_[b].index != index) {
    SHEAF_CHECK(kBinMin <= index && index <= kBinMax, "bin {}", index);
    bins_.insert(bins_.begin() + static_cast<ptrdiff_t>(b),
                 Bin{.index = index, .load = 0, .digits = std::make_unique<int64_t[]>(size_)});
  }
  return bins_[b];
}

void ExactBlock::MakeRoom() {
  const bool is_full = std::any_of(bins_.begin(), bins_.end(), [](const Bin& bin) { return bin.load > kRoomy; });
  if (is_full) Normalise();
}

}  // namespace sheaf
