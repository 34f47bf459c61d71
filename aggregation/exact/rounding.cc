#include "aggregation/exact/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sheaf {
namespace {

int BitWidth(unsigned __int128 value) {
  const uint64_t high = static_cast<uint64_t>(value >> 64);
  const uint64_t low = static_cast<uint64_t>(value);
  if (high != 0) return 128 - __builtin_clzll(high);
  return low == 0 ? 0 : 64 - __builtin_clzll(low);
}

// value / 2^shift, rounded half to even. shift > 0, and value is below 2^127.
uint64_t ShiftRight(unsigned __int128 value, int shift) {
  if (shift > 127) return 0;  // Less than a half.
  const unsigned __int128 quotient = value >> shift;
  const unsigned __int128 rest = value - (quotient << shift);
  const unsigned __int128 half = static_cast<unsigned __int128>(1) << (shift - 1);
  const bool up = rest > half || (rest == half && (quotient & 1) != 0);
  return static_cast<uint64_t>(quotient) + (up ? 1 : 0);
}

// value * 2^exponent, where that is exact or overflows. As std::ldexp, but inlined.
double TimesPowerOfTwo(double value, int exponent) {
  if (exponent < -1022 || exponent > 1023) return std::ldexp(value, exponent);
  return value * std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

}  // namespace

template <typename Float>
Float RoundInteger(__int128 value, int exponent) {
  constexpr int kPrecision = std::numeric_limits<Float>::digits;
  constexpr int kLowest = std::numeric_limits<Float>::min_exponent - kPrecision;  // Of a subnormal's last bit.
  if (value == 0) return 0;
  const bool is_negative = value < 0;
  const unsigned __int128 magnitude =
      is_negative ? -static_cast<unsigned __int128>(value) : static_cast<unsigned __int128>(value);
  const int width = BitWidth(magnitude);
  // The exponent of the last bit that the result has: that of a normal number, or of a subnormal.
  const int last = std::max(exponent + width - kPrecision, kLowest);
  const int shift = last - exponent;
  // At most kPrecision bits (or the next power of two) are left, so the scaling below is exact or overflows, and so is
  // the cast: the one rounding was in ShiftRight.
  const double rounded = shift > 0 ? TimesPowerOfTwo(static_cast<double>(ShiftRight(magnitude, shift)), last)
                                   : TimesPowerOfTwo(static_cast<double>(static_cast<uint64_t>(magnitude)), exponent);
  return static_cast<Float>(is_negative ? -rounded : rounded);
}

template float RoundInteger<float>(__int128, int);
template double RoundInteger<double>(__int128, int);

}  // namespace sheaf
