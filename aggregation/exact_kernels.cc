#include "aggregation/exact_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

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
// 1.5 * 2^52: adding it rounds to an integer, which then stands in the low bits.
constexpr double kMagic = 6755399441055744.0;
constexpr int64_t kMagicBits = std::bit_cast<int64_t>(kMagic);

template <typename T>
inline T Load(const char* values, int64_t i) {
  T value;
  std::memcpy(&value, values + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

inline int64_t ToInteger(double shifted) { return std::bit_cast<int64_t>(shifted) - kMagicBits; }
// |integer| <= 2^51.
inline double ToDouble(int64_t integer) { return std::bit_cast<double>(integer + kMagicBits) - kMagic; }

// integer / 2^bits, rounded down. AVX2 shifts 64-bit integers only as unsigned ones.
inline int64_t ShiftRight(int64_t integer, int bits) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return static_cast<int64_t>(((static_cast<uint64_t>(integer) ^ kSign) >> bits) - (kSign >> bits));
}

// upper + lower, rounded once to float.
inline float NarrowSum(double upper, double lower) {
  const double sum = upper + lower;
  // What the addition lost (Knuth's TwoSum).
  const double lower_part = sum - upper;
  const double lost = (upper - (sum - lower_part)) + (lower - lower_part);
  // Rounded to odd instead: where something was lost, the last bit is 1. The second rounding, to float, then is what
  // one rounding of the true sum would be (Boldo and Melquiond, 2008), down to the subnormals.
  const int64_t bits = std::bit_cast<int64_t>(sum);
  const int64_t away = (lost > 0) == (sum > 0) ? 1 : -1;
  const int64_t step = lost != 0 && (bits & 1) == 0 ? away : 0;
  return static_cast<float>(std::bit_cast<double>(bits + step));
}

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
  const double wide_weight = weight;
  const double magic = kMagic * unit;
  const int64_t magic_bits = std::bit_cast<int64_t>(magic);
  for (int i = 0; i < n; ++i) {
    const double value = static_cast<double>(Load<float>(values, i)) * wide_weight;
    digits[i] += std::bit_cast<int64_t>(value + magic) - magic_bits;
  }
}

SHEAF_KERNEL void AddToTwoBins(const char* __restrict values, int n, float weight, double unit,
                               int64_t* __restrict high, int64_t* __restrict low) {
  const double wide_weight = weight;
  // Adding these rounds to a multiple of the bin's unit, whose number then stands in the low bits.
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
    product[i] = values[i] * weight;
    error[i] = std::fma(values[i], weight, -product[i]);
  }
}

void ScatterIntegers(int64_t* into, const uint32_t* at, const int64_t* from, int n) {
  for (int i = 0; i < n; ++i) into[at[i]] += from[i];
}

SHEAF_KERNEL void CombineDigits(const int64_t* __restrict digits2, const int64_t* __restrict digits1,
                                const int64_t* __restrict digits0, int n, double unit, double* __restrict sums) {
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

SHEAF_KERNEL void SplitDigits(const int64_t* __restrict digits, int n, int bits, int64_t* __restrict into,
                              int64_t* __restrict carry) {
  const int64_t half = int64_t{1} << (bits - 1), base = int64_t{1} << bits, scale = int64_t{1} << (32 - bits);
  for (int i = 0; i < n; ++i) {
    const int64_t upper = ShiftRight(digits[i] + half, bits);
    into[i] += (digits[i] - upper * base) * scale;
    carry[i] += upper;
  }
}

SHEAF_KERNEL int64_t LargestMagnitude(const int64_t* integers, int n) {
  int64_t largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, integers[i] < 0 ? -integers[i] : integers[i]);
  return largest;
}

SHEAF_KERNEL void AddIntegers(int64_t* __restrict into, const int64_t* __restrict from, int n) {
  for (int i = 0; i < n; ++i) into[i] += from[i];
}

}  // namespace sheaf
