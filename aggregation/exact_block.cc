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
// One number adds at most 2^48 + 1 to a digit, so one call at most 2^58 + 2^10.
constexpr int kTopBits = 48;
constexpr int64_t kLoadMax = int64_t{1} << 62;
constexpr int64_t kRoomy = int64_t{1} << 61;
// Digits of at most this much are exact in a double, also when converted by ToDouble of the kernels.
constexpr int64_t kFastMax = int64_t{1} << 51;
// Below this many elements, cutting one by one beats setting up the loops.
constexpr int kFew = 8;
// A third digit of at most this much leaves room for the second below 2^51.
constexpr int64_t kThirdMax = int64_t{1} << 18;
constexpr int64_t kZeros[ExactBlock::kRunMax] = {};

constexpr int FloorDiv(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
constexpr int CeilDiv(int a, int b) { return -FloorDiv(-a, b); }

// weight = odd * 2^low, and weight <= 2^top.
struct WeightRange {
  uint32_t mantissa;
  int low;
  int top;
};

// The bins that numbers of a range fall into, and the most that one of them adds to the top one.
struct BinRange {
  int top;
  int low;
  int64_t top_amount;
};

BinRange BinsOf(int top_exponent, int low_exponent) {
  const int top = CeilDiv(top_exponent - kTopBits, kBits);
  return {.top = top,
          .low = std::min(top, FloorDiv(low_exponent, kBits)),
          .top_amount = (int64_t{1} << (top_exponent - kBits * top)) + 1};
}

WeightRange Decompose(float weight) {
  int exponent = 0;
  const float fraction = std::frexp(weight, &exponent);
  uint32_t mantissa = static_cast<uint32_t>(std::ldexp(fraction, 24));
  const int zeros = std::countr_zero(mantissa);
  mantissa >>= zeros;
  return {.mantissa = mantissa, .low = exponent - 24 + zeros, .top = mantissa == 1 ? exponent - 1 : exponent};
}

}  // namespace

void ExactBlock::Grow(int size) {
  for (Bin& bin : bins_) {
    auto digits = std::make_unique<int64_t[]>(static_cast<size_t>(size));
    std::copy_n(bin.digits, size_, digits.get());
    bin.owned = std::move(digits);
    bin.digits = bin.owned.get();
  }
  size_ = size;
}

bool ExactBlock::AddFloats(int at, const char* values, int n, float weight) {
  MakeRoom();
  const WeightRange w = Decompose(weight);
  if (n < kFew) {
    if (!AllFinite32(values, n)) return false;
    for (int i = 0; i < n; ++i) {
      float value;
      std::memcpy(&value, values + 4 * static_cast<ptrdiff_t>(i), sizeof value);
      AddOne(at + i, value, w.mantissa, w.low);
    }
    return true;
  }
  const FloatRange range = ScanFloats(values, n);
  if (range.is_all_zero || !range.is_finite) return range.is_finite;
  const BinRange bins = BinsOf(range.top + w.top, range.low + w.low);
  const double scale = std::ldexp(static_cast<double>(weight), -kBits * bins.top);
  if (bins.top == bins.low) {
    AddToOneBin(values, n, scale, Open(bins.top, bins.top_amount) + at);
  } else if (bins.top == bins.low + 1) {
    int64_t* high_digits = Open(bins.top, bins.top_amount) + at;
    AddToTwoBins(values, n, scale, high_digits, Open(bins.low, kHalf) + at);
  } else {
    double rest[kRunMax];
    Scale(values, n, scale, rest);
    AddScaled(at, nullptr, rest, n, bins.top, bins.low, bins.top_amount);
  }
  return true;
}

bool ExactBlock::AddDoubles(int at, const char* values, int n, float weight) {
  double wide[kRunMax];
  std::memcpy(wide, values, static_cast<size_t>(n) * sizeof(double));
  if (weight == 1) return AddWide(at, nullptr, wide, n, 53);
  const FloatRange range = ScanDoubles(wide, n, 53);
  if (range.is_all_zero || !range.is_finite) return range.is_finite;
  const WeightRange w = Decompose(weight);
  if (range.top + w.top > 1000 || range.low + w.low < -1000) {
    MakeRoom();
    for (int i = 0; i < n; ++i) AddOne(at + i, wide[i], w.mantissa, w.low);
    return true;
  }
  double product[kRunMax], error[kRunMax];
  TwoProduct(wide, n, weight, product, error);
  AddWide(at, nullptr, product, n, 53);
  return AddWide(at, nullptr, error, n, 53);
}

bool ExactBlock::AddScattered(const uint32_t* at, const double* values, int n, int precision) {
  return AddWide(0, at, values, n, precision);
}

bool ExactBlock::AddWide(int at, const uint32_t* scattered, const double* values, int n, int precision) {
  MakeRoom();
  const FloatRange range = ScanDoubles(values, n, precision);
  if (range.is_all_zero || !range.is_finite) return range.is_finite;
  const BinRange bins = BinsOf(range.top, range.low);
  // Near the ends of the range the scale, or what it makes of the smallest value, would leave it.
  const bool is_extreme = bins.top < -31 || bins.top > 31 || range.low - kBits * bins.top < -1074;
  if (is_extreme || n < kFew) {
    for (int i = 0; i < n; ++i) AddOne(scattered == nullptr ? at + i : static_cast<int>(scattered[i]), values[i], 1, 0);
    return true;
  }
  double rest[kRunMax];
  Scale(values, n, std::ldexp(1.0, -kBits * bins.top), rest);
  AddScaled(at, scattered, rest, n, bins.top, bins.low, bins.top_amount);
  return true;
}

void ExactBlock::AddScaled(int at, const uint32_t* scattered, double* rest, int n, int top, int low,
                           int64_t top_amount) {
  for (int index = top; index >= low; --index) {
    const int64_t amount = index == top ? top_amount : kHalf;
    if (RoundsToZero(rest, n)) {
      MultiplyByBase(rest, n);
    } else if (scattered == nullptr) {
      MoveToBin(rest, n, Open(index, amount) + at);
    } else {
      int64_t digits[kRunMax];
      CutDigits(rest, n, digits);
      ScatterIntegers(Open(index, amount * n), scattered, digits, n);
    }
  }
}

void ExactBlock::AddOne(int at, double value, uint32_t weight_mantissa, int weight_exponent) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t field = (bits >> 52) & 0x7ff;
  const uint64_t mantissa = (bits & 0xfffffffffffffull) | (field == 0 ? 0ull : 0x10000000000000ull);
  AddTerm(at, (bits >> 63) != 0, static_cast<unsigned __int128>(mantissa) * weight_mantissa,
          static_cast<int>(std::max<uint64_t>(field, 1)) - 1075 + weight_exponent);
}

void ExactBlock::AddTerm(int at, bool is_negative, unsigned __int128 magnitude, int exponent) {
  int index = FloorDiv(exponent, kBits);
  for (magnitude <<= exponent - kBits * index; magnitude != 0; magnitude >>= kBits, ++index) {
    const int64_t digit = static_cast<uint32_t>(magnitude);
    if (digit != 0) Open(index, int64_t{1} << kBits)[at] += is_negative ? -digit : digit;
  }
}

void ExactBlock::AddBlock(int at, const ExactBlock& other, int other_at, int n) {
  for (const Bin& from : other.bins_) {
    const int64_t amount = LargestMagnitude(from.digits + other_at, n);
    if (amount == 0) continue;
    if (FindBin(from.index).load > kLoadMax - amount) Normalise();
    if (amount <= kRoomy) {
      AddIntegers(Open(from.index, amount) + at, from.digits + other_at, n);
      continue;
    }
    // So full that this block may not hold it beside its own: carry first.
    int64_t lower[kRunMax], upper[kRunMax];
    for (int i = 0; i < n; ++i) {
      upper[i] = (from.digits[other_at + i] + kHalf) >> kBits;
      lower[i] = from.digits[other_at + i] - upper[i] * (int64_t{1} << kBits);
    }
    AddIntegers(Open(from.index, kHalf) + at, lower, n);
    AddIntegers(Open(from.index + 1, kHalf) + at, upper, n);
  }
}

void ExactBlock::AddDigits(int at, int index, const int32_t* digits, int n) {
  MakeRoom();
  int64_t* into = Open(index, kHalf) + at;
  for (int i = 0; i < n; ++i) into[i] += digits[i];
}

void ExactBlock::Normalise() {
  for (size_t b = 0; b < bins_.size(); ++b) {
    int64_t* const digits = bins_[b].digits;
    for (int begin = 0; begin < size_; begin += kRunMax) {
      const int n = std::min(kRunMax, size_ - begin);
      int64_t carries[kRunMax];
      int64_t any_carry = 0;
      for (int i = 0; i < n; ++i) {
        int64_t& digit = digits[begin + i];
        carries[i] = (digit + kHalf) >> kBits;
        digit -= carries[i] * (int64_t{1} << kBits);
        any_carry |= carries[i];
      }
      // The next bin, new or not, stands at b + 1: the loop comes to it next.
      if (any_carry != 0) AddIntegers(Open(bins_[b].index + 1, kHalf) + begin, carries, n);
    }
    bins_[b].load = kHalf;
  }
}

void ExactBlock::Clear() {
  for (Bin& bin : bins_) {
    std::fill_n(bin.digits, size_, 0);
    bin.load = 0;
  }
}

template <typename Float>
bool ExactBlock::RoundFast(int at, int n, Float* sums) const {
  const auto combine = [&](const int64_t* digits2, const int64_t* digits1, const int64_t* digits0, int low) {
    CombineDigits(digits2, digits1, digits0, n, std::ldexp(1.0, kBits * low), sums);
    return true;
  };
  const auto is_plain = [](const Bin& bin) { return bin.load <= kFastMax && -28 <= bin.index && bin.index <= 25; };
  if (bins_.size() == 1 && is_plain(bins_[0])) return combine(kZeros, kZeros, bins_[0].digits + at, bins_[0].index);
  if (bins_.size() == 2 && is_plain(bins_[0]) && is_plain(bins_[1]) && bins_[1].index == bins_[0].index + 1) {
    return combine(kZeros, bins_[1].digits + at, bins_[0].digits + at, bins_[0].index);
  }
  // The digits of three neighbouring bins from the lowest up that holds any; zeros where nothing is.
  const int64_t* digits[3] = {kZeros, kZeros, kZeros};
  int low = kBinMax;
  for (const Bin& bin : bins_) {
    const int64_t* const from = bin.digits + at;
    if (bin.load > kFastMax && LargestMagnitude(from, n) > kFastMax) return false;
    if (low == kBinMax) {
      if (LargestMagnitude(from, n) == 0) continue;
      low = bin.index;
    }
    const bool is_far = bin.index > low + 2 || (bin.index == low + 2 && LargestMagnitude(from, n) > kThirdMax);
    if (is_far && LargestMagnitude(from, n) > 0) return false;
    if (!is_far) digits[bin.index - low] = from;
  }
  // With a third bin, the second is added to it, and must leave room.
  if (digits[2] != kZeros && LargestMagnitude(digits[1], n) > kFastMax / 2) return false;
  if (low == kBinMax) low = 0;
  if (low < -28 || low > 25) return false;
  return combine(digits[2], digits[1], digits[0], low);
}

template <typename Float>
Float ExactBlock::RoundOne(int i) const {
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

template <typename Float>
void ExactBlock::RoundTo(int at, int n, Float* sums) const {
  if (RoundFast(at, n, sums)) return;
  ExactBlock carried(n);
  carried.AddBlock(0, *this, at, n);
  carried.Normalise();
  if (carried.RoundFast(0, n, sums)) return;
  for (int i = 0; i < n; ++i) sums[i] = RoundOne<Float>(at + i);
}

void ExactBlock::Round(int at, int n, double* sums) const { RoundTo(at, n, sums); }
void ExactBlock::Round(int at, int n, float* sums) const { RoundTo(at, n, sums); }

int64_t ExactBlock::memory_bytes() const {
  return static_cast<int64_t>(sizeof *this + bins_.capacity() * sizeof(Bin) +
                              bins_.size() * sizeof(int64_t) * static_cast<size_t>(size_));
}

int64_t* ExactBlock::Open(int index, int64_t amount) {
  Bin& bin = FindBin(index);
  bin.load += amount;
  return bin.digits;
}

ExactBlock::Bin& ExactBlock::FindBin(int index) {
  size_t b = 0;
  while (b < bins_.size() && bins_[b].index < index) ++b;
  if (b < bins_.size() && bins_[b].index == index) return bins_[b];
  SHEAF_CHECK(kBinMin <= index && index <= kBinMax, "bin {}", index);
  Bin bin{.index = index, .load = 0, .digits = nullptr, .owned = nullptr};
  if (pool_ == nullptr) {
    bin.owned = std::make_unique<int64_t[]>(static_cast<size_t>(size_));
    bin.digits = bin.owned.get();
  } else {
    bin.digits = pool_->Allocate<int64_t>(size_);
  }
  return *bins_.insert(bins_.begin() + static_cast<ptrdiff_t>(b), std::move(bin));
}

void ExactBlock::MakeRoom() {
  const bool is_full = std::any_of(bins_.begin(), bins_.end(), [](const Bin& bin) { return bin.load > kRoomy; });
  if (is_full) Normalise();
}

}  // namespace sheaf
