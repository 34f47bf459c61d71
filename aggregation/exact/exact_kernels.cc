#include "aggregation/exact/exact_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

// The transformations below are error-free: what an operation rounds away is itself a float, and is kept. They are
//
//   the sum of two         Knuth, The Art of Computer Programming, vol. 2, section 4.2.2, theorem B
//   the product of two     Ogita, Rump and Oishi, Accurate sum and dot product, 2005 (with a fused multiply-add)
//   the bits above a unit  Rump, Ogita and Oishi, Accurate floating-point summation, 2008; as deposits into bins,
//   Demmel
//                          and Nguyen, Parallel reproducible summation, 2015, and Ahrens, Demmel and Nguyen,
//                          Algorithms for efficient reproducible floating point summation, 2020 (ReproBLAS)
//   rounding to odd        Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008
//
// They hold in round-to-nearest while nothing overflows or underflows, which callers see to, and only if the compiler
// neither reassociates nor fuses: the tree is built with -ffp-contract=off.

// One body, compiled for AVX2 with FMA and for every x86-64, chosen when the program is loaded. Both give the same
// bits: wherever FMA saves a rounding, that rounding is exact. Sanitizers start too late for the choice.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(SHEAF_SANITIZE_THREAD)
#define SHEAF_KERNEL __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define SHEAF_KERNEL
#endif

namespace sheaf {
namespace {

constexpr double kBase = 4294967296.0;
constexpr int64_t kHalf = int64_t{1} << 31;
// 1.5 * 2^52, in the middle of [2^52, 2^53), where neighbouring doubles are 1 apart. Adding any |x| <= 2^51 stays in
// there, and so rounds x to the nearest integer, half to even; and because the doubles of one binade are numbered by
// their bits, the integer is the difference of the bits. The half, 0.5 * 2^52, is there for negative x: 2^52 alone
// would leave the binade.
constexpr double kMagic = 6755399441055744.0;
constexpr int64_t kMagicBits = std::bit_cast<int64_t>(kMagic);

template <typename T>
inline T Load(const char* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// The integer that was added to kMagic.
inline int64_t ToInteger(double shifted) { return std::bit_cast<int64_t>(shifted) - kMagicBits; }
// The same backwards, for |integer| <= 2^51; the subtraction is exact. There is no such instruction before AVX-512.
inline double ToDouble(int64_t integer) { return std::bit_cast<double>(integer + kMagicBits) - kMagic; }

// integer / 2^bits, rounded down. AVX2 shifts 64-bit integers only as unsigned ones, so 2^63 is added before, and
// 2^(63 - bits) taken away after.
inline int64_t ShiftRight(int64_t integer, int bits) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return static_cast<int64_t>(((static_cast<uint64_t>(integer) ^ kSign) >> bits) - (kSign >> bits));
}

// sum + lost = a + b, exactly, whichever is larger (Knuth's TwoSum; six operations, and no branch).
struct Sum {
  double sum;
  double lost;
};
inline Sum TwoSum(double a, double b) {
  const double sum = a + b;
  const double of_b = sum - a;
  return {.sum = sum, .lost = (a - (sum - of_b)) + (b - of_b)};
}

// `rounded` is a number rounded to nearest, and `lost` has the sign of what that lost. Returns the number rounded to
// odd: where something was lost, the neighbour towards zero or away from it whose last bit is 1. A second rounding, to
// at least two bits fewer, is then what one rounding of the number itself would be: floats and the middles between them
// have an even last bit as doubles, so none of them lies between the number and what it became. 53 bits are more than
// 24 + 2, and subnormal floats have still fewer.
inline double RoundToOdd(double rounded, double lost) {
  const int64_t bits = std::bit_cast<int64_t>(rounded);
  // Bits of doubles grow with the magnitude, whatever the sign.
  const int64_t away = (lost > 0) == (rounded > 0) ? 1 : -1;
  const int64_t step = lost != 0 && (bits & 1) == 0 ? away : 0;
  return std::bit_cast<double>(bits + step);
}

// upper + lower, rounded once.
inline float NarrowSum(double upper, double lower) {
  const auto [sum, lost] = TwoSum(upper, lower);
  return static_cast<float>(RoundToOdd(sum, lost));
}
inline void RoundSum(double upper, double lower, float& rounded) { rounded = NarrowSum(upper, lower); }
inline void RoundSum(double upper, double lower, double& rounded) { rounded = upper + lower; }

// Exponent of the leading bit of a float that is not zero; subnormals count as the smallest normal.
int LeadingExponent(uint32_t magnitude) { return std::max<int>(static_cast<int>(magnitude >> 23), 1) - 127; }

}  // namespace

SHEAF_KERNEL FloatRange ScanFloats(const char* values, int n) {
  uint32_t largest = 0;
  uint32_t smallest_less_one = UINT32_MAX;  // Zeros wrap around and do not count.
  for (int i = 0; i < n; ++i) {
    const uint32_t magnitude = Load<uint32_t>(values, i) & 0x7fffffffu;
    largest = std::max(largest, magnitude);
    smallest_less_one = std::min(smallest_less_one, magnitude - 1);
  }
  if (largest == 0) return {};
  return {.is_all_zero = false,
          .is_finite = largest < 0x7f800000u,
          .top = LeadingExponent(largest) + 1,
          .low = LeadingExponent(smallest_less_one + 1) - 23};
}

SHEAF_KERNEL FloatRange ScanDoubles(const double* values, int n, int precision) {
  int64_t largest = 0;
  int64_t smallest = INT64_MAX;
  for (int i = 0; i < n; ++i) {
    const int64_t magnitude = std::bit_cast<int64_t>(values[i]) & INT64_MAX;
    largest = std::max(largest, magnitude);
    smallest = std::min(smallest, magnitude == 0 ? INT64_MAX : magnitude);
  }
  if (largest == 0) return {};
  const auto exponent = [](int64_t magnitude) { return std::max<int>(static_cast<int>(magnitude >> 52), 1) - 1023; };
  return {.is_all_zero = false,
          .is_finite = largest < (int64_t{0x7ff} << 52),
          .top = exponent(largest) + 1,
          .low = std::max(exponent(smallest) - precision + 1, -1074)};
}

template <typename Float>
inline __attribute__((always_inline)) void SumsOfOneTo(const char* __restrict values, int n, Float* __restrict sums) {
  constexpr Float kNan = std::numeric_limits<Float>::quiet_NaN();
  for (int i = 0; i < n; ++i) {
    const Float value = Load<Float>(values, i);
    sums[i] = value == value ? value + Float{0} : kNan;
  }
}

SHEAF_KERNEL void SumsOfOne(const char* values, int n, float* sums) { SumsOfOneTo(values, n, sums); }
SHEAF_KERNEL void SumsOfOne(const char* values, int n, double* sums) { SumsOfOneTo(values, n, sums); }

SHEAF_KERNEL bool AllFinite32(const char* values, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, Load<uint32_t>(values, i) & 0x7fffffffu);
  return largest < 0x7f800000u;
}

SHEAF_KERNEL bool AllFinite64(const char* values, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, Load<uint32_t>(values, 2 * i + 1) & 0x7fffffffu);
  return largest < 0x7ff00000u;
}

SHEAF_KERNEL void AddToOneBin(const char* __restrict values, int n, float weight, double unit,
                              int64_t* __restrict digits) {
  // The product of two floats has 48 bits, and is exact. Multiples of the unit below 2^51 of it: adding the magic
  // number, scaled to the unit, rounds nothing away.
  const double wide_weight = weight;
  const double magic = kMagic * unit;
  const int64_t magic_bits = std::bit_cast<int64_t>(magic);
  for (int i = 0; i < n; ++i) {
    const double value = static_cast<double>(Load<float>(values, i)) * wide_weight;
    digits[i] += std::bit_cast<int64_t>(value + magic) - magic_bits;
  }
}

SHEAF_KERNEL void SetOneBin(const char* __restrict values, int n, float weight, double unit,
                            int64_t* __restrict digits) {
  const double wide_weight = weight;
  const double magic = kMagic * unit;
  const int64_t magic_bits = std::bit_cast<int64_t>(magic);
  for (int i = 0; i < n; ++i) {
    const double value = static_cast<double>(Load<float>(values, i)) * wide_weight;
    digits[i] = std::bit_cast<int64_t>(value + magic) - magic_bits;
  }
}

SHEAF_KERNEL void AddToTwoBins(const char* __restrict values, int n, float weight, double unit,
                               int64_t* __restrict high, int64_t* __restrict low) {
  const double wide_weight = weight;
  // The upper bin takes the nearest multiple of its unit, which `shifted - magic` is, exactly. What is left is exact,
  // too: a multiple of the value's last bit that is no larger than the value. It lies within half a unit, 2^31 of the
  // lower bin's, and is an integer number of those.
  const double magic = kMagic * unit, low_magic = magic / kBase;
  const int64_t magic_bits = std::bit_cast<int64_t>(magic), low_magic_bits = std::bit_cast<int64_t>(low_magic);
  for (int i = 0; i < n; ++i) {
    const double value = static_cast<double>(Load<float>(values, i)) * wide_weight;
    const double shifted = value + magic;
    const double rest = value - (shifted - magic);
    high[i] += std::bit_cast<int64_t>(shifted) - magic_bits;
    low[i] += std::bit_cast<int64_t>(rest + low_magic) - low_magic_bits;
  }
}

SHEAF_KERNEL void Scale(const char* values, int n, double scale, double* rest) {
  for (int i = 0; i < n; ++i) rest[i] = static_cast<double>(Load<float>(values, i)) * scale;
}

SHEAF_KERNEL void Scale(const double* __restrict values, int n, double scale, double* __restrict rest) {
  for (int i = 0; i < n; ++i) rest[i] = values[i] * scale;
}

// |rest[i]| <= 2^51 before; at most half of it is left, times 2^32: what is left fits again.
SHEAF_KERNEL void CutDigits(double* __restrict rest, int n, int64_t* __restrict digits) {
  for (int i = 0; i < n; ++i) {
    const double shifted = rest[i] + kMagic;
    digits[i] = ToInteger(shifted);
    rest[i] = (rest[i] - (shifted - kMagic)) * kBase;
  }
}

SHEAF_KERNEL void MoveToBin(double* __restrict rest, int n, int64_t* __restrict digits) {
  for (int i = 0; i < n; ++i) {
    const double shifted = rest[i] + kMagic;
    digits[i] += ToInteger(shifted);
    rest[i] = (rest[i] - (shifted - kMagic)) * kBase;
  }
}

SHEAF_KERNEL bool RoundsToZero(const double* rest, int n) {
  int64_t nonzero = 0;
  for (int i = 0; i < n; ++i) nonzero |= ToInteger(rest[i] + kMagic);
  return nonzero == 0;
}

SHEAF_KERNEL void MultiplyByBase(double* rest, int n) {
  for (int i = 0; i < n; ++i) rest[i] *= kBase;
}

SHEAF_KERNEL void TwoProduct(const double* __restrict values, int n, double weight, double* __restrict product,
                             double* __restrict error) {
  for (int i = 0; i < n; ++i) {
    // What a product loses is a double, unless it is below the smallest; the fused operation rounds nothing else.
    product[i] = values[i] * weight;
    error[i] = std::fma(values[i], weight, -product[i]);
  }
}

void ScatterIntegers(int64_t* into, const uint32_t* at, const int64_t* from, int n) {
  for (int i = 0; i < n; ++i) into[at[i]] += from[i];
}

SHEAF_KERNEL void CombineDigits(const int64_t* __restrict digits2, const int64_t* __restrict digits1,
                                const int64_t* __restrict digits0, int n, double unit, double* __restrict sums) {
  // Both summands are exact: integers of at most 2^51, scaled by powers of two. So the addition is the only rounding.
  const double unit1 = unit * kBase;
  for (int i = 0; i < n; ++i) {
    sums[i] = ToDouble(digits2[i] * (int64_t{1} << 32) + digits1[i]) * unit1 + ToDouble(digits0[i]) * unit;
  }
}

SHEAF_KERNEL void CombineDigits(const int64_t* __restrict digits2, const int64_t* __restrict digits1,
                                const int64_t* __restrict digits0, int n, double unit, float* __restrict sums) {
  const double unit1 = unit * kBase;
  for (int i = 0; i < n; ++i) {
    sums[i] = NarrowSum(ToDouble(digits2[i] * (int64_t{1} << 32) + digits1[i]) * unit1, ToDouble(digits0[i]) * unit);
  }
}

// A digit of up to 2^62 is no double. Its two halves are: digit = upper * 2^32 + lower, -2^31 <= lower < 2^31.
SHEAF_KERNEL void ScaleDigits(const int64_t* __restrict digits, int n, double unit, double* __restrict sums) {
  const double unit1 = unit * kBase;
  for (int i = 0; i < n; ++i) {
    const int64_t upper = ShiftRight(digits[i] + kHalf, 32);
    sums[i] = ToDouble(upper) * unit1 + ToDouble(digits[i] - upper * (int64_t{1} << 32)) * unit;
  }
}

SHEAF_KERNEL void ScaleDigits(const int64_t* __restrict digits, int n, double unit, float* __restrict sums) {
  const double unit1 = unit * kBase;
  for (int i = 0; i < n; ++i) {
    const int64_t upper = ShiftRight(digits[i] + kHalf, 32);
    sums[i] = NarrowSum(ToDouble(upper) * unit1, ToDouble(digits[i] - upper * (int64_t{1} << 32)) * unit);
  }
}

SHEAF_KERNEL void ScaleSmallDigits(const int64_t* __restrict digits, int n, double unit, double* __restrict sums) {
  for (int i = 0; i < n; ++i) sums[i] = ToDouble(digits[i]) * unit;
}

SHEAF_KERNEL void ScaleSmallDigits(const int64_t* __restrict digits, int n, double unit, float* __restrict sums) {
  for (int i = 0; i < n; ++i) sums[i] = static_cast<float>(ToDouble(digits[i]) * unit);
}

SHEAF_KERNEL void SplitSums(const int64_t* __restrict digits2, const int64_t* __restrict digits1,
                            const int64_t* __restrict digits0, int n, double unit, double* __restrict upper,
                            double* __restrict lower) {
  const double unit1 = unit * kBase;
  for (int i = 0; i < n; ++i) {
    upper[i] = ToDouble(digits2[i] * (int64_t{1} << 32) + digits1[i]) * unit1;
    lower[i] = ToDouble(digits0[i]) * unit;
  }
}

SHEAF_KERNEL void SplitSums(const int64_t* __restrict digits, int n, double unit, double* __restrict upper,
                            double* __restrict lower) {
  const double unit1 = unit * kBase;
  for (int i = 0; i < n; ++i) {
    const int64_t high = ShiftRight(digits[i] + kHalf, 32);
    upper[i] = ToDouble(high) * unit1;
    lower[i] = ToDouble(digits[i] - high * (int64_t{1} << 32)) * unit;
  }
}

// Why two roundings to odd are one rounding of the true quotient. Let m be a float, or the middle between two: 25 bits.
// The quotient lies above m exactly if the dividend lies above m * divisor, which has at most 25 + 27 = 52 bits, so is
// a double with an even last bit: rounding the dividend to odd leaves it on its side. Rounding the quotient of that to
// odd leaves it on its side of m, which is a double with even last bits, too.
inline float DivideOddByFewBits(double dividend, double divisor) {
  const double quotient = dividend / divisor;
  const double rest = std::fma(-quotient, divisor, dividend);
  return static_cast<float>(RoundToOdd(quotient, rest));
}

SHEAF_KERNEL void DivideByFewBits(const double* __restrict upper, const double* __restrict lower,
                                  const double* __restrict divisors, int n, float* __restrict quotients) {
  for (int i = 0; i < n; ++i) {
    const Sum sum = TwoSum(upper[i], lower[i]);
    quotients[i] = DivideOddByFewBits(RoundToOdd(sum.sum, sum.lost), divisors[i]);
  }
}

SHEAF_KERNEL void DivideByFewBits(const double* __restrict dividends, const double* __restrict divisors, int n,
                                  float* __restrict quotients) {
  for (int i = 0; i < n; ++i) quotients[i] = DivideOddByFewBits(dividends[i], divisors[i]);
}

template <typename Float>
inline __attribute__((always_inline)) int DivideSumsTo(const double* __restrict upper, const double* __restrict lower,
                                                       const double* __restrict divisors,
                                                       const double* __restrict lower_divisors, int n,
                                                       Float* __restrict quotients, int* __restrict unsure) {
  // With u = 2^-53, S the dividend and D the divisor: S = s + l with |l| <= u |s|, and |D - (d + d') | <= u^2 d with
  // |d'| <= u d. Let q be s / d, rounded. The true quotient is q + (S - q D) / D, and
  //
  //   S - q D = r + l - q d' - q (D - d - d'),   r = s - q d,   |r| <= u |q| d,
  //
  // so |S - q D| <= 3 u |q| d, nearly. r is a double: the remainder of a division is, unless it is below the smallest,
  // for which the quotient would have to be below kSmallest or the divisor not plain (ExactBlock::DivideTo). What is
  // lost on the way to `correction`, in units of u^2 |q|: 2 when r + l is rounded, 1 with q d', 3 when that is
  // subtracted, 1 with what no double holds of D, 3 by the division, and 3 because it divides by d instead of D. And 3
  // more where the error is added. That is 16 u^2 = 2^-102 at most; kError is four times as much.
  constexpr double kError = 0x1p-100, kSmallest = 0x1p-800, kLargest = 0x1p+1000;
  int64_t is_sure[1024];
  for (int i = 0; i < n; ++i) {
    const Sum sum = TwoSum(upper[i], lower[i]);
    const double quotient = sum.sum / divisors[i];
    // r, then with l, then with d'.
    const Sum rest = TwoSum(std::fma(-quotient, divisors[i], sum.sum), sum.lost);
    const double left = rest.sum - quotient * lower_divisors[i];
    const double correction = left / divisors[i];
    const double beyond = std::fma(-correction, divisors[i], left);
    const bool is_exact = beyond == 0 && rest.lost == 0 && lower_divisors[i] == 0;
    // If both ends of what the true quotient may be round to the same, so does it. Rounding is monotonic.
    const double error = is_exact ? 0 : std::fabs(quotient) * kError;
    Float low, high;
    RoundSum(quotient, correction - error, low);
    RoundSum(quotient, correction + error, high);
    quotients[i] = low;
    const double size = std::fabs(quotient);
    const bool is_inside = (size >= kSmallest) & (size <= kLargest);
    is_sure[i] = (sum.sum == 0) | (is_inside & (low == high)) ? 1 : 0;
  }
  int num_unsure = 0;
  for (int i = 0; i < n; ++i) {
    unsure[num_unsure] = i;
    num_unsure += is_sure[i] == 0 ? 1 : 0;
  }
  return num_unsure;
}

SHEAF_KERNEL int DivideSums(const double* upper, const double* lower, const double* divisors,
                            const double* lower_divisors, int n, double* quotients, int* unsure) {
  return DivideSumsTo(upper, lower, divisors, lower_divisors, n, quotients, unsure);
}

SHEAF_KERNEL int DivideSums(const double* upper, const double* lower, const double* divisors,
                            const double* lower_divisors, int n, float* quotients, int* unsure) {
  return DivideSumsTo(upper, lower, divisors, lower_divisors, n, quotients, unsure);
}

SHEAF_KERNEL void SplitDigits(const int64_t* __restrict digits, int n, int bits, int64_t* __restrict into,
                              int64_t* __restrict carry) {
  const int64_t half = int64_t{1} << (bits - 1), base = int64_t{1} << bits, scale = int64_t{1} << (32 - bits);
  for (int i = 0; i < n; ++i) {
    const int64_t upper = ShiftRight(digits[i] + half, bits);
    into[i] += (digits[i] - upper * base) * scale;
    carry[i] += upper;
  }
}

// The union of the counts' bits is at least the largest of them, and less than twice as much: so it may say no too
// early, which costs time and no bits, and never yes where a count is over 2^51.
SHEAF_KERNEL bool CountsToDivisors(const int64_t* __restrict counts, int64_t n, double* __restrict divisors) {
  int64_t all = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t divisor = counts[i] + (counts[i] == 0 ? 1 : 0);
    divisors[i] = ToDouble(divisor);
    all |= divisor;
  }
  return all <= int64_t{1} << 51;
}

SHEAF_KERNEL bool AreBetween(const double* values, int n, double smallest, double largest) {
  // Floats that are >= 0 are ordered as their bits are.
  const auto least = std::bit_cast<int64_t>(smallest), most = std::bit_cast<int64_t>(largest);
  int64_t beyond = 0;
  for (int i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<int64_t>(values[i]);
    beyond |= (bits - least) | (most - bits);
  }
  return beyond >= 0;
}

SHEAF_KERNEL uint64_t UnionOfBits(const double* values, int n) {
  uint64_t bits = 0;
  for (int i = 0; i < n; ++i) bits |= std::bit_cast<uint64_t>(values[i]);
  return bits;
}

SHEAF_KERNEL int64_t LargestMagnitude(const int64_t* integers, int n) {
  int64_t largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, integers[i] < 0 ? -integers[i] : integers[i]);
  return largest;
}

SHEAF_KERNEL bool FitInt32(const int64_t* integers, int n) {
  uint64_t beyond = 0;
  for (int i = 0; i < n; ++i) beyond |= static_cast<uint64_t>(integers[i] + kHalf) >> 32;
  return beyond == 0;
}

SHEAF_KERNEL void NarrowDigits(const int64_t* __restrict digits, int n, int32_t* __restrict narrow) {
  for (int i = 0; i < n; ++i) narrow[i] = static_cast<int32_t>(digits[i]);
}

SHEAF_KERNEL void AddIntegers(int64_t* __restrict into, const int64_t* __restrict from, int n) {
  for (int i = 0; i < n; ++i) into[i] += from[i];
}

}  // namespace sheaf
