#include "aggregation/exact/exact_block.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "aggregation/exact/exact_kernels.h"
#include "aggregation/exact/rounding.h"
#include "base/check.h"

// The invariant, between calls and for every bin:
//
//   no digit is larger in magnitude than the bin's load, and the load is at most 2^62 + 2^10.
//
// MakeRoom, at the beginning of a call that adds numbers, brings each load to 2^61 or below. One number adds at most
// 2^51 + 1 to a digit (the 1 is for rounding up), and one call at most 2^10 numbers: 2^61 + 2^10 together. So digits
// never overflow, and a bin needs no look but once in 2^10 calls at least. States, which are added digit by digit, are
// below 2^62 as well: AddBlock makes room for them, or splits them. What a sum is worth, the sum of digit * 2^exponent
// over its bins, no call changes but by what it adds.

namespace sheaf {
namespace {

constexpr int kBits = ExactBlock::kDigitBits;
constexpr int64_t kHalf = int64_t{1} << (kBits - 1);
constexpr int kStep = 4;
constexpr int64_t kLoadMax = int64_t{1} << 62;
constexpr int64_t kRoomy = int64_t{1} << 61;
static_assert(kLoadMax - kRoomy == int64_t{ExactBlock::kRunMax} << 51);
// How far above the numbers that made it a new bin reaches: later ones may be larger.
constexpr int kMargin = 4;
// Digits of at most this much are exact in a double, also when converted by ToDouble of the kernels.
constexpr int64_t kFastMax = int64_t{1} << 51;
// A third digit of at most this much leaves room for the second below 2^51.
constexpr int64_t kThirdMax = int64_t{1} << 18;
constexpr int64_t kZeros[ExactBlock::kRunMax] = {};
constexpr double kNothing[ExactBlock::kRunMax] = {};
// Exponents that leave room for three digits in the normal range of a double, at either end.
constexpr int kPlainMin = -900, kPlainMax = 800;
// A digit reaches so far above its exponent.
constexpr int kDigitTop = 62;
// Of what is divided, and of what it is divided by: so that neither the quotient nor what is left of the dividend
// leaves the normal range. Honest weights add up to 2^-149 at least, and to 2^190 at most.
constexpr int kDividendMin = -600, kDividendMax = 600;
constexpr double kDivisorMin = 0x1p-150, kDivisorMax = 0x1p+200;
// Of a double: bits that one of 27 significant bits has not; and its sign.
constexpr uint64_t kBeyondFewBits = (uint64_t{1} << 26) - 1;
constexpr uint64_t kSignBit = uint64_t{1} << 63;
// Of bins that single numbers open, so that those of about one size share few.
constexpr int kSingleStep = 16;

constexpr int FloorDiv(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
constexpr int RoundDown(int exponent, int step) { return FloorDiv(exponent, step) * step; }
constexpr int RoundUp(int exponent, int step) { return -RoundDown(-exponent, step); }
bool IsCanonical(int exponent) { return RoundDown(exponent, kBits) == exponent; }

}  // namespace

ExactBlock::WeightRange ExactBlock::RangeOfWeight(float weight) {
  int exponent = 0;
  const float fraction = std::frexp(weight, &exponent);
  uint32_t mantissa = static_cast<uint32_t>(std::ldexp(fraction, 24));
  const int zeros = std::countr_zero(mantissa);
  mantissa >>= zeros;
  return {.mantissa = mantissa, .low = exponent - 24 + zeros, .top = mantissa == 1 ? exponent - 1 : exponent};
}

ExactBlock ExactBlock::OfOneBin(int size, int exponent, int64_t load, const int64_t* digits) {
  ExactBlock block(size);
  block.bins_.push_back({.exponent = exponent, .load = load, .digits = const_cast<int64_t*>(digits), .owned = nullptr});
  return block;
}

std::optional<int> ExactBlock::OneBinExponent(int top, int low) {
  if (const int roomy = RoundUp(top + kMargin - kTopBits, kStep); roomy <= low) return roomy;
  if (const int tight = RoundDown(low, kStep); OneBinTakes(tight, top, low)) return tight;
  return std::nullopt;
}

void ExactBlock::Grow(int size) {
  for (Bin& bin : bins_) {
    auto digits = std::make_unique<int64_t[]>(static_cast<size_t>(size));
    std::copy_n(bin.digits, size_, digits.get());
    GiveBack(bin);
    bin.owned = std::move(digits);
    bin.digits = bin.owned.get();
  }
  size_ = size;
}

void ExactBlock::GiveBack(const Bin& bin) {
  if (bin.owned == nullptr) pool_->GiveBack(bin.digits, size_);
}

bool ExactBlock::AddFloats(int at, const char* values, int n, float weight) {
  return AddFloats(at, values, n, weight, n < kFew ? FloatRange{} : ScanFloats(values, n));
}

bool ExactBlock::AddFloats(int at, const char* values, int n, float weight, const FloatRange& range) {
  MakeRoom();
  const WeightRange w = RangeOfWeight(weight);
  if (n < kFew) {
    if (!AllFinite32(values, n)) return false;
    for (int i = 0; i < n; ++i) {
      float value;
      std::memcpy(&value, values + 4 * static_cast<ptrdiff_t>(i), sizeof value);
      AddOne(at + i, value, w.mantissa, w.low);
    }
    return true;
  }
  if (range.is_all_zero || !range.is_finite) return range.is_finite;
  const Target target = Choose(range.top + w.top, range.low + w.low, kStep);
  // What the kernels ask for: products below 2^51 units, and nothing below the lowest bin's unit.
  SHEAF_CHECK(range.top + w.top - target.top <= kTopBits);
  SHEAF_CHECK(range.low + w.low >= target.top - kBits * (target.num_bins - 1));
  const double unit = std::ldexp(1.0, target.top);
  if (target.num_bins == 1) {
    AddToOneBin(values, n, weight, unit, Open(target.top, target.top_amount) + at);
  } else if (target.num_bins == 2) {
    int64_t* high_digits = Open(target.top, target.top_amount) + at;
    AddToTwoBins(values, n, weight, unit, high_digits, Open(target.top - kBits, kHalf) + at);
  } else {
    double rest[kRunMax];
    Scale(values, n, weight / unit, rest);
    AddScaled(at, nullptr, rest, n, target);
  }
  return true;
}

void ExactBlock::Prefetch(int at, int n) const {
  constexpr int kLine = 64 / sizeof(int64_t);
  // The rest of a long row is fetched by the stream prefetcher.
  constexpr int kLines = 8;
  for (const Bin& bin : bins_) {
    for (int i = at; i < at + std::min(n, kLines * kLine); i += kLine) __builtin_prefetch(&bin.digits[i], 1);
  }
}

bool ExactBlock::AddDoubles(int at, const char* values, int n, float weight) {
  double wide[kRunMax];
  std::memcpy(wide, values, static_cast<size_t>(n) * sizeof(double));
  if (weight == 1) return AddWide(at, nullptr, wide, n, 53);
  const FloatRange range = ScanDoubles(wide, n, 53);
  if (range.is_all_zero || !range.is_finite) return range.is_finite;
  const WeightRange w = RangeOfWeight(weight);
  if (range.top + w.top > 1000 || range.low + w.low < -1000) {
    MakeRoom();
    for (int i = 0; i < n; ++i) AddOne(at + i, wide[i], w.mantissa, w.low);
    return true;
  }
  // 53 and 24 bits give 77, in two doubles; of weights that are powers of two the second is 0.
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
  const Target target = Choose(range.top, range.low, kStep);
  SHEAF_CHECK(range.top - target.top <= kTopBits && range.low >= target.top - kBits * (target.num_bins - 1));
  // Near the ends of the range the scale, or what it makes of the smallest value, would leave it.
  const bool is_extreme = target.top < -992 || target.top > 992 || range.low - target.top < -1074;
  if (is_extreme || n < kFew) {
    for (int i = 0; i < n; ++i) AddOne(scattered == nullptr ? at + i : static_cast<int>(scattered[i]), values[i], 1, 0);
    return true;
  }
  double rest[kRunMax];
  Scale(values, n, std::ldexp(1.0, -target.top), rest);
  AddScaled(at, scattered, rest, n, target);
  return true;
}

ExactBlock::Target ExactBlock::Choose(int top, int low, int step) const {
  // The bin of this exponent, and as many below it, 32 apart, as reach down to `low`. What the upper one rounds away is
  // at most half of its unit, 2^31 of the next one's: only the first takes more than kHalf.
  const auto target = [&](int exponent) {
    const int below = std::max(0, exponent - low);
    return Target{.top = exponent,
                  .num_bins = 1 + (below + kBits - 1) / kBits,
                  .top_amount = (int64_t{1} << std::max(0, top - exponent)) + 1};
  };
  // A bin that takes the numbers whole; else the lowest that takes their upper parts, unless it is so far up that
  // little would be left to take.
  const Bin* upper = nullptr;
  for (const Bin& bin : bins_) {
    if (top - bin.exponent > kTopBits) continue;
    if (bin.exponent <= low) return target(bin.exponent);
    if (upper == nullptr && top - bin.exponent >= kBits / 2) upper = &bin;
  }
  // No bin that is there will do. One that takes the numbers whole, if they span no more than 51 bits: with a margin
  // for larger ones to come if that is possible, on a wide grid first, so that runs of about one size share it; else as
  // low as they need it. If they span more, the upper parts go to a bin that has room, and the rest below.
  if (is_canonical_) {
    const int whole = RoundDown(low, kBits);
    return target(top - whole <= kTopBits ? whole : RoundUp(top - kTopBits, kBits));
  }
  if (const int shared = RoundUp(top + kMargin - kTopBits, step); shared <= low) return target(shared);
  if (const std::optional<int> whole = OneBinExponent(top, low)) return target(*whole);
  return target(upper != nullptr ? upper->exponent : RoundUp(top + kMargin - kTopBits, kStep));
}

void ExactBlock::AddScaled(int at, const uint32_t* scattered, double* rest, int n, const Target& target) {
  // Before each bin, |rest[i]| <= 2^51 of its units; each takes the nearest integer and leaves half of one, which is
  // 2^31 of the next. After the last nothing is left: the numbers are multiples of its unit.
  for (int b = 0; b < target.num_bins; ++b) {
    const int exponent = target.top - kBits * b;
    const int64_t amount = b == 0 ? target.top_amount : kHalf;
    if (RoundsToZero(rest, n)) {
      MultiplyByBase(rest, n);
    } else if (scattered == nullptr) {
      MoveToBin(rest, n, Open(exponent, amount) + at);
    } else {
      int64_t digits[kRunMax];
      CutDigits(rest, n, digits);
      ScatterIntegers(Open(exponent, amount * n), scattered, digits, n);
    }
  }
}

void ExactBlock::AddOne(int at, double value, uint32_t weight_mantissa, int weight_exponent) {
  // mantissa * 2^(field - 1075); of subnormals the field counts as 1, and there is no hidden bit. The mantissas of a
  // double and a weight have 53 and 24 bits: their product, 77, is an integer of 128.
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t field = (bits >> 52) & 0x7ff;
  const uint64_t mantissa = (bits & 0xfffffffffffffull) | (field == 0 ? 0ull : 0x10000000000000ull);
  AddTerm(at, (bits >> 63) != 0, static_cast<unsigned __int128>(mantissa) * weight_mantissa,
          static_cast<int>(std::max<uint64_t>(field, 1)) - 1075 + weight_exponent);
}

void ExactBlock::AddTerm(int at, bool is_negative, unsigned __int128 magnitude, int exponent) {
  if (magnitude == 0) return;
  if (MayHaveManyBins()) LimitBins();
  // Without its zeros it may fit one bin.
  while ((magnitude & 0xff) == 0) magnitude >>= 8, exponent += 8;
  const uint64_t upper = static_cast<uint64_t>(magnitude >> 64);
  const int width = upper != 0 ? 64 + std::bit_width(upper) : std::bit_width(static_cast<uint64_t>(magnitude));
  const Target target = Choose(exponent + width, exponent, kSingleStep);
  if (target.num_bins == 1) {
    const int64_t digit = static_cast<int64_t>(magnitude << (exponent - target.top));
    Open(target.top, target.top_amount)[at] += is_negative ? -digit : digit;
    return;
  }
  // Cut at multiples of 32, which all numbers that are cut like this share. 77 bits moved by up to 31 fit 128.
  int lowest = RoundDown(exponent, kBits);
  for (magnitude <<= exponent - lowest; magnitude != 0; magnitude >>= kBits, lowest += kBits) {
    const int64_t digit = static_cast<uint32_t>(magnitude);
    if (digit != 0) Open(lowest, int64_t{1} << kBits)[at] += is_negative ? -digit : digit;
  }
}

void ExactBlock::AddBlock(int at, const ExactBlock& other, int other_at, int n) {
  if (MayHaveManyBins()) LimitBins();
  for (const Bin& from : other.bins_) {
    const int64_t amount = LargestMagnitude(from.digits + other_at, n);
    if (amount == 0) continue;
    if (is_canonical_ && !IsCanonical(from.exponent)) {
      AddCut(at, from.exponent, from.digits + other_at, n);
      continue;
    }
    Bin& into = FindBin(from.exponent);
    if (into.load > kLoadMax - amount) {
      MakeRoom();
      if (FindBin(from.exponent).load > kLoadMax - amount) Carry(from.exponent);
    }
    if (amount <= kRoomy) {
      AddIntegers(Open(from.exponent, amount) + at, from.digits + other_at, n);
      continue;
    }
    // So full that this block may not hold it beside its own: its upper halves go to the bin above.
    if (FindBin(from.exponent + kBits).load > kRoomy) Carry(from.exponent + kBits);
    int64_t* const lower = Open(from.exponent, kHalf) + at;
    SplitDigits(from.digits + other_at, n, kBits, lower, Open(from.exponent + kBits, kHalf) + at);
  }
}

void ExactBlock::AddDigits(int at, int exponent, const int32_t* digits, int n) {
  MakeRoom();
  int64_t* into = Open(exponent, kHalf) + at;
  for (int i = 0; i < n; ++i) into[i] += digits[i];
}

void ExactBlock::Carry(int exponent) {
  // A digit d below 2^63 is c * 2^32 + r with -2^31 <= r < 2^31 and |c| <= 2^31: r stays, c goes to the bin above,
  // which must have room. Each bin above that is full carries in turn, and there are no more than the range has.
  if (FindBin(exponent + kBits).load > kRoomy) Carry(exponent + kBits);
  int64_t* const above = Open(exponent + kBits, kHalf);
  Bin& bin = FindBin(exponent);
  for (int begin = 0; begin < size_; begin += kRunMax) {
    const int n = std::min(kRunMax, size_ - begin);
    int64_t lower[kRunMax] = {};
    SplitDigits(bin.digits + begin, n, kBits, lower, above + begin);
    std::copy_n(lower, n, bin.digits + begin);
  }
  bin.load = kHalf;
}

void ExactBlock::AddCut(int at, int exponent, const int64_t* digits, int n) {
  // With s = exponent - below, 0 < s < 32, and b = 32 - s: a digit d = c * 2^b + r, -2^(b - 1) <= r < 2^(b - 1), is
  // worth r * 2^s in the bin at `below`, which is at most 2^31, and c in the bin above it, since 2^s * 2^b = 2^32.
  // Exponents are multiples of 4, so that c is no more than 2^59.
  const int below = RoundDown(exponent, kBits);
  const int bits = kBits - (exponent - below);
  for (const int to : {below, below + kBits}) {
    if (FindBin(to).load > kRoomy) Carry(to);
  }
  int64_t* const lower = Open(below, kHalf) + at;
  int64_t* const upper = Open(below + kBits, kLoadMax >> (bits - 1)) + at;
  for (int begin = 0; begin < n; begin += kRunMax) {
    SplitDigits(digits + begin, std::min(kRunMax, n - begin), bits, lower + begin, upper + begin);
  }
}

void ExactBlock::LimitBins() {
  // Canonical bins for what these can hold would be span / 32 + 2 at most. As long as there are no more, whatever came,
  // memory is bounded by the range of the numbers and not by their order.
  const int span = bins_.back().exponent + kDigitTop - bins_.front().exponent;
  if (static_cast<int>(bins_.size()) <= span / kBits + 2) return;
  // In memory of its own first: the pool only grows, and what is there is enough, unless another thread takes it.
  const ExactBlock canonical = Canonical(0, size_);
  for (const Bin& bin : bins_) GiveBack(bin);
  bins_.clear();
  is_canonical_ = true;
  for (const Bin& bin : canonical.bins_) {
    if (LargestMagnitude(bin.digits, size_) == 0) continue;
    Bin& into = FindBin(bin.exponent);
    std::copy_n(bin.digits, size_, into.digits);
    into.load = kHalf;
  }
}

int ExactBlock::NewBinsMax(int top, int low) {
  const int roomy = RoundUp(top + kMargin - kTopBits, kStep);
  if (roomy <= low || top - RoundDown(low, kStep) <= kTopBits) return 1;
  return 1 + (roomy - low + kBits - 1) / kBits;
}

int ExactBlock::NewBinsOfSinglesMax(int top, int low, int precision) {
  const int span = top - low;
  // LimitBins leaves no more, and one number may open three before it looks.
  const int limit = (span + kDigitTop) / kBits + 5;
  // So narrow that it always fits a bin on the wide grid.
  constexpr int kNarrow = kTopBits - kMargin - kSingleStep + 1;
  return precision > kNarrow ? limit : std::min(std::max(0, span - precision) / kSingleStep + 2, limit);
}

void ExactBlock::Normalise() {
  // Bins at other exponents are cut to fit those at multiples of 32.
  for (size_t b = 0; b < bins_.size();) {
    const int exponent = bins_[b].exponent;
    if (IsCanonical(exponent)) {
      ++b;
      continue;
    }
    // Out of the list while it is cut, which may add others.
    const Bin cut = std::move(bins_[b]);
    bins_.erase(bins_.begin() + static_cast<ptrdiff_t>(b));
    AddCut(0, exponent, cut.digits, size_);
    GiveBack(cut);
    b = 0;
  }
  // From the lowest up, and as far as there is anything to carry: a bin that was carried takes nothing any more. Digits
  // of [-2^31, 2^31) at multiples of 32 are a number's only ones, as those of a number system are: so equal sums get
  // equal digits, whatever bins they had.
  for (size_t b = 0; b < bins_.size(); ++b) {
    if (!FitInt32(bins_[b].digits, size_)) Carry(bins_[b].exponent);
    bins_[b].load = kHalf;
  }
}

void ExactBlock::Clear() {
  for (Bin& bin : bins_) {
    std::fill_n(bin.digits, size_, 0);
    bin.load = 0;
  }
}

std::optional<ExactBlock::FastDigits> ExactBlock::FindFastDigits(int at, int n) const {
  const auto is_plain = [](const Bin& bin) { return kPlainMin <= bin.exponent && bin.exponent <= kPlainMax; };
  FastDigits fast{.is_one_bin = true, .fits_double = false, .digits = {kZeros, kZeros, kZeros}, .exponent = 0};
  if (bins_.size() == 1 && is_plain(bins_[0])) {
    fast.digits[0] = bins_[0].digits + at;
    fast.exponent = bins_[0].exponent;
    fast.fits_double = bins_[0].load <= kFastMax || LargestMagnitude(fast.digits[0], n) <= kFastMax;
    return fast;
  }
  // The digits of three neighbouring bins from the lowest up that holds any; zeros where nothing is.
  fast.is_one_bin = false;
  const Bin* lowest = nullptr;
  for (const Bin& bin : bins_) {
    const int64_t* const from = bin.digits + at;
    const int64_t largest = LargestMagnitude(from, n);
    if (largest == 0) continue;
    if (lowest == nullptr) lowest = &bin;
    const int above = bin.exponent - lowest->exponent;
    if (!is_plain(bin) || above % kBits != 0 || above > 2 * kBits) return std::nullopt;
    if (largest > (above == 2 * kBits ? kThirdMax : kFastMax)) return std::nullopt;
    fast.digits[above / kBits] = from;
  }
  // With a third bin, the second is added to it: 2^18 * 2^32 + 2^50 = 2^51, which is as much as a double takes.
  if (fast.digits[2] != kZeros && LargestMagnitude(fast.digits[1], n) > kFastMax / 2) return std::nullopt;
  if (lowest != nullptr) fast.exponent = lowest->exponent;
  return fast;
}

template <typename Float>
bool ExactBlock::RoundFast(int at, int n, Float* sums) const {
  const std::optional<FastDigits> fast = FindFastDigits(at, n);
  if (!fast.has_value()) return false;
  const double unit = std::ldexp(1.0, fast->exponent);
  if (fast->fits_double) {
    ScaleSmallDigits(fast->digits[0], n, unit, sums);
  } else if (fast->is_one_bin) {
    ScaleDigits(fast->digits[0], n, unit, sums);
  } else {
    CombineDigits(fast->digits[2], fast->digits[1], fast->digits[0], n, unit, sums);
  }
  return true;
}

ExactBlock::Split ExactBlock::SplitFast(int at, int n, double* upper, double* lower) const {
  const std::optional<FastDigits> fast = FindFastDigits(at, n);
  // What is divided needs room for what is left.
  if (!fast.has_value() || fast->exponent < kDividendMin || fast->exponent > kDividendMax) return Split::kNone;
  const double unit = std::ldexp(1.0, fast->exponent);
  if (fast->fits_double) {
    ScaleSmallDigits(fast->digits[0], n, unit, upper);
    return Split::kUpper;
  }
  if (fast->is_one_bin) {
    SplitSums(fast->digits[0], n, unit, upper, lower);
  } else {
    SplitSums(fast->digits[2], fast->digits[1], fast->digits[0], n, unit, upper, lower);
  }
  return Split::kBoth;
}

ExactBlock ExactBlock::Canonical(int at, int n) const {
  ExactBlock canonical = WithCanonicalBins(n);
  canonical.AddBlock(0, *this, at, n);
  canonical.Normalise();
  return canonical;
}

template <typename Float>
void ExactBlock::RoundTo(int at, int n, Float* sums) const {
  if (RoundFast(at, n, sums)) return;
  const ExactBlock canonical = Canonical(at, n);
  if (canonical.RoundFast(0, n, sums)) return;
  for (int i = 0; i < n; ++i) sums[i] = canonical.RoundOne<Float>(i);
}

ExactDigits ExactBlock::DigitsOf(int i) const {
  ExactDigits digits;
  for (const Bin& bin : bins_) {
    if (bin.digits[i] != 0) digits.AddDigit(bin.exponent, bin.digits[i]);
  }
  return digits;
}

template <typename Float>
void ExactBlock::DivideTo(int at, int n, const ExactDivisors& divisors, Float* quotients) const {
  const double* divisor = divisors.upper().data();
  const double* lower_divisor = divisors.lower().empty() ? kNothing : divisors.lower().data();
  const int num_divisors = divisors.is_one() ? 1 : n;
  const bool are_plain = AreBetween(divisor, num_divisors, kDivisorMin, kDivisorMax);
  const bool have_few_bits = (UnionOfBits(divisor, num_divisors) & kBeyondFewBits) == 0 &&
                             (divisors.lower().empty() || (UnionOfBits(lower_divisor, num_divisors) & ~kSignBit) == 0);
  double all[kRunMax], all_lower[kRunMax];
  if (divisors.is_one()) {
    std::fill_n(all, n, *std::exchange(divisor, all));
    std::fill_n(all_lower, n, *std::exchange(lower_divisor, all_lower));
  }
  double upper[kRunMax], lower[kRunMax];
  const auto divide_fast = [&](const ExactBlock& block, int from, int* unsure) -> std::optional<int> {
    if (!are_plain) return std::nullopt;
    const Split split = block.SplitFast(from, n, upper, lower);
    if (split == Split::kNone) return std::nullopt;
    if constexpr (sizeof(Float) == sizeof(float)) {
      if (have_few_bits && split == Split::kUpper) return DivideByFewBits(upper, divisor, n, quotients), 0;
      if (have_few_bits) return DivideByFewBits(upper, lower, divisor, n, quotients), 0;
    }
    return DivideSums(upper, split == Split::kUpper ? kNothing : lower, divisor, lower_divisor, n, quotients, unsure);
  };
  int unsure[kRunMax + 1];
  std::optional<int> num_unsure = divide_fast(*this, at, unsure);
  if (num_unsure == 0) return;
  const ExactBlock canonical = Canonical(at, n);
  if (!num_unsure.has_value()) num_unsure = divide_fast(canonical, 0, unsure);
  const auto divide_one = [&](int i) {
    quotients[i] = RoundQuotient<Float>(canonical.DigitsOf(i), WholeOf(divisors.At(i)));
  };
  if (num_unsure.has_value()) {
    for (int u = 0; u < *num_unsure; ++u) divide_one(unsure[u]);
  } else {
    for (int i = 0; i < n; ++i) divide_one(i);
  }
}

void ExactBlock::Divide(int at, int n, const ExactDivisors& divisors, double* quotients) const {
  DivideTo(at, n, divisors, quotients);
}
void ExactBlock::Divide(int at, int n, const ExactDivisors& divisors, float* quotients) const {
  DivideTo(at, n, divisors, quotients);
}

ExactDigits ExactBlock::WholeOf(const ExactDivisor& divisor) {
  if (divisor.whole.block != nullptr) return divisor.whole.block->Canonical(divisor.whole.cell, 1).DigitsOf(0);
  ExactDigits digits;
  digits.Add(divisor.upper);
  digits.Add(divisor.lower);
  return digits;
}

void ExactBlock::ToDivisors(int at, int n, int64_t to, ExactDivisorColumns& divisors) const {
  double* const sums = divisors.upper.data() + to;
  double* const left = divisors.lower.data() + to;
  double upper[kRunMax], lower[kRunMax];
  const Split split = SplitFast(at, n, upper, lower);
  if (split == Split::kUpper) {
    std::copy_n(upper, n, sums);
    return;
  }
  if (split == Split::kBoth) {
    for (int i = 0; i < n; ++i) {
      sums[i] = upper[i] + lower[i];
      // What the addition lost (Knuth's TwoSum).
      const double of_lower = sums[i] - upper[i];
      left[i] = (upper[i] - (sums[i] - of_lower)) + (lower[i] - of_lower);
    }
    return;
  }
  Round(at, n, sums);
  divisors.whole.resize(divisors.upper.size());
  for (int i = 0; i < n; ++i) {
    ExactBlock rest(1);
    rest.AddBlock(0, *this, at + i, 1);
    if (std::isfinite(sums[i])) rest.AddOne(0, -sums[i], 1, 0);
    rest.Round(0, 1, &left[i]);
    divisors.whole[static_cast<size_t>(to + i)] = {.block = this, .cell = at + i};
  }
}

template <typename Float>
Float ExactBlock::RoundOne(int i) const {
  // The leading digit is 1 at least, so the three leading ones make 2^64 - 2^63 - 2^31 > 2^62 units at least: 10 bits
  // more than a double has, and floats and the middles between them are even numbers of units. What lies below is less
  // than one unit, 2^31 / (2^32 - 1), and of the sign of its own leading digit, so that nothing but the sign can
  // matter: half a unit of that sign stands for it.
  size_t b = bins_.size();
  while (b > 0 && bins_[b - 1].digits[i] == 0) --b;
  if (b == 0) return 0;
  const int lowest = bins_[b - 1].exponent - 2 * kBits;
  __int128 leading = 0;
  int sticky = 0;
  while (b > 0 && sticky == 0) {
    const Bin& bin = bins_[--b];
    const int64_t digit = bin.digits[i];
    if (bin.exponent >= lowest) {
      leading += static_cast<__int128>(digit) * (__int128{1} << (bin.exponent - lowest));
    } else if (digit != 0) {
      sticky = digit > 0 ? 1 : -1;
    }
  }
  return RoundInteger<Float>(2 * leading + sticky, lowest - 1);
}

void ExactBlock::Round(int at, int n, double* sums) const { RoundTo(at, n, sums); }
void ExactBlock::Round(int at, int n, float* sums) const { RoundTo(at, n, sums); }

int64_t ExactBlock::memory_bytes() const {
  return static_cast<int64_t>(sizeof *this + bins_.capacity() * sizeof(Bin) +
                              bins_.size() * sizeof(int64_t) * static_cast<size_t>(size_));
}

int64_t* ExactBlock::Open(int exponent, int64_t amount) {
  Bin& bin = FindBin(exponent);
  bin.load += amount;
  return bin.digits;
}

ExactBlock::Bin& ExactBlock::FindBin(int exponent) {
  size_t b = 0;
  while (b < bins_.size() && bins_[b].exponent < exponent) ++b;
  if (b < bins_.size() && bins_[b].exponent == exponent) return bins_[b];
  SHEAF_CHECK(kExponentMin <= exponent && exponent <= kExponentMax, "bin of exponent {}", exponent);
  Bin bin{.exponent = exponent, .load = 0, .digits = nullptr, .owned = nullptr};
  if (pool_ == nullptr) {
    bin.owned = std::make_unique<int64_t[]>(static_cast<size_t>(size_));
    bin.digits = bin.owned.get();
  } else {
    bin.digits = pool_->Allocate<int64_t>(size_);
  }
  return *bins_.insert(bins_.begin() + static_cast<ptrdiff_t>(b), std::move(bin));
}

void ExactBlock::MakeRoom() {
  if (MayHaveManyBins()) LimitBins();
  for (size_t b = 0; b < bins_.size(); ++b) {
    if (bins_[b].load <= kRoomy) continue;
    // The load is a bound for all elements together; most of the time none is near it.
    int64_t largest = 0;
    for (int begin = 0; begin < size_; begin += kRunMax) {
      largest = std::max(largest, LargestMagnitude(bins_[b].digits + begin, std::min(kRunMax, size_ - begin)));
    }
    bins_[b].load = largest;
    if (largest > kRoomy / 2) Carry(bins_[b].exponent);
  }
}

}  // namespace sheaf
