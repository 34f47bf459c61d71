#include "aggregation/exact/exact_quotient.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

// How the quotient is rounded. Of dividend and divisor the 64 leading bits are divided, which gives the quotient's
// leading 63 or 64 with an error of less than kError of the last; 53 of them at most are kept, and decide, unless what
// lies below those is as close to a half as the error. Then dividend and (kept + 1/2) * divisor are compared as what
// they are, integers of any length: the one comparison that cannot be wrong.

namespace sheaf {
namespace {

constexpr int kBits = 32;
constexpr int kDigits = ExactDigits::kDigits;
constexpr int kPoint = ExactDigits::kPoint;

// A number > 0 in digits of 0 <= digit < 2^32, and where they begin and end.
struct Magnitude {
  // Set between the lowest and the highest.
  std::array<uint32_t, kDigits> digits;
  // The lowest and the highest that are not 0; lowest > highest for zero.
  int lowest = kDigits;
  int highest = -1;
  bool is_negative = false;
};

// Brings digits of any sign and 62 bits to digits of 32. A number is negative exactly if a borrow is left over at its
// upper end; then its negative has none.
Magnitude MagnitudeOf(const ExactDigits& number) {
  Magnitude magnitude;
  // Digits of 62 bits carry less than 2^31 into the digit beyond the last, which is one more; another is for the
  // borrow.
  const int end = std::min(number.end + 2, kDigits);
  const auto carry_all = [&](int64_t sign) {
    int64_t carry = 0;
    for (int k = number.begin; k < end; ++k) {
      const int64_t digit = sign * number.digits[static_cast<size_t>(k)] + carry;
      magnitude.digits[static_cast<size_t>(k)] = static_cast<uint32_t>(digit);
      carry = digit >> kBits;
    }
    return carry;
  };
  if (carry_all(1) < 0) {
    magnitude.is_negative = true;
    const int64_t left = carry_all(-1);
    SHEAF_CHECK(left == 0, "a number has more digits than there are");
  }
  for (int k = number.begin; k < end; ++k) {
    if (magnitude.digits[static_cast<size_t>(k)] == 0) continue;
    magnitude.lowest = std::min(magnitude.lowest, k);
    magnitude.highest = k;
  }
  return magnitude;
}

// The 64 leading bits: the number is at least bits * 2^exponent and less than (bits + 1) * 2^exponent.
struct Leading {
  uint64_t bits;
  int exponent;
};

Leading LeadingOf(const Magnitude& number) {
  // The highest digit is not 0, so three have at least 65 bits.
  unsigned __int128 top = 0;
  for (int k = number.highest; k > number.highest - 3; --k) {
    top = (top << kBits) | (k >= number.lowest ? number.digits[static_cast<size_t>(k)] : 0u);
  }
  const int width = 64 + static_cast<int>(std::bit_width(static_cast<uint64_t>(top >> 64)));
  return {.bits = static_cast<uint64_t>(top >> (width - 64)),
          .exponent = kBits * (number.highest - 2 - kPoint) + width - 64};
}

// The sign of dividend - multiple * 2^exponent * divisor.
int Compare(const Magnitude& dividend, uint64_t multiple, int exponent, const Magnitude& divisor) {
  // multiple * 2^exponent = scaled * 2^(32 * shift), with scaled < 2^(55 + 31): three digits. The difference is made
  // from the lowest digit up, as on paper, and never kept: its sign is that of what is carried out at the top, or, if
  // that is 0, is + unless all digits were 0.
  const int shift = exponent >= 0 ? exponent / kBits : -((-exponent + kBits - 1) / kBits);
  const unsigned __int128 scaled = static_cast<unsigned __int128>(multiple) << (exponent - shift * kBits);
  // Below the lowest digit of either nothing is left to compare.
  const int begin = std::min(dividend.lowest, divisor.lowest + shift);
  const int end = std::max(dividend.highest, divisor.highest + shift + 3) + 2;
  const auto digit_of = [](const Magnitude& number, int k) -> uint64_t {
    return number.lowest <= k && k <= number.highest ? number.digits[static_cast<size_t>(k)] : 0;
  };
  __int128 carry = 0;
  bool is_zero_below = true;
  for (int k = begin; k < end; ++k) {
    __int128 digit = carry + static_cast<__int128>(digit_of(dividend, k));
    for (int part = 0; part < 3; ++part) {
      digit -=
          static_cast<__int128>(digit_of(divisor, k - shift - part) * static_cast<uint32_t>(scaled >> (kBits * part)));
    }
    is_zero_below &= static_cast<uint32_t>(digit) == 0;
    carry = digit >> kBits;
  }
  if (carry != 0) return carry < 0 ? -1 : 1;
  return is_zero_below ? 0 : 1;
}

}  // namespace

void ExactDigits::Add(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t field = (bits >> 52) & 0x7ff;
  SHEAF_CHECK(field != 0x7ff, "only finite numbers have digits");
  const uint64_t mantissa = (bits & 0xfffffffffffffull) | (field == 0 ? 0ull : 0x10000000000000ull);
  const int position = static_cast<int>(std::max<uint64_t>(field, 1)) - 1075 + kBits * kPoint;
  unsigned __int128 placed = static_cast<unsigned __int128>(mantissa) << (position % kBits);
  for (int k = position / kBits; placed != 0; ++k, placed >>= kBits) {
    const int64_t digit = static_cast<uint32_t>(placed);
    AddDigit(kBits * (k - kPoint), bits >> 63 != 0 ? -digit : digit);
  }
}

void ExactDigits::AddDigit(int exponent, int64_t digit) {
  const int k = exponent / kBits + kPoint;
  SHEAF_CHECK(0 <= k && k < kDigits, "digit of exponent {}", exponent);
  digits[static_cast<size_t>(k)] += digit;
  begin = std::min(begin, k);
  end = std::max(end, k + 1);
}

template <typename Float>
Float RoundQuotient(const ExactDigits& dividend, const ExactDigits& divisor) {
  constexpr int kPrecision = std::numeric_limits<Float>::digits;
  constexpr int kLowest = std::numeric_limits<Float>::min_exponent - kPrecision;  // Of a subnormal's last bit.
  // With N <= n < N + 1 and D <= d < D + 1, all of [2^63, 2^64]: n / d * 2^63 lies above N / D * 2^63 - 2^64 / D, so by
  // at most 2 below it, and by at most 2^63 / D <= 1 above it; and the division drops less than 1.
  constexpr __int128 kError = 4;
  const Magnitude above = MagnitudeOf(dividend), below = MagnitudeOf(divisor);
  if (above.highest < 0) return 0;
  SHEAF_CHECK(below.highest >= 0 && !below.is_negative, "a divisor is not > 0");
  const Leading numerator = LeadingOf(above), denominator = LeadingOf(below);
  const uint64_t quotient =
      static_cast<uint64_t>((static_cast<unsigned __int128>(numerator.bits) << 63) / denominator.bits);
  const int exponent = numerator.exponent - denominator.exponent - 63;
  // The last bit that is kept, and what lies below it: ten bits at least, so that the error cannot change what is kept
  // but at the middle, or at its ends, where what is below rounds to the same float either way.
  const int last = std::max(exponent + static_cast<int>(std::bit_width(quotient)) - kPrecision, kLowest);
  const int shift = last - exponent;
  // The quotient is below 2^64, so the number is far below half of the smallest subnormal.
  if (shift > 66) return above.is_negative ? -Float{0} : Float{0};
  const auto kept = static_cast<uint64_t>(static_cast<unsigned __int128>(quotient) >> shift);
  const __int128 rest = static_cast<__int128>(quotient) - (static_cast<__int128>(kept) << shift);
  const __int128 from_middle = rest - (__int128{1} << (shift - 1));
  bool is_up = from_middle > 0;
  if (-kError <= from_middle && from_middle <= kError) {
    const int sign = Compare(above, 2 * kept + 1, last - 1, below);
    is_up = sign > 0 || (sign == 0 && (kept & 1) != 0);
  }
  // At most kPrecision bits, or the next power of two: exact, or it overflows.
  const double rounded = std::ldexp(static_cast<double>(kept + (is_up ? 1 : 0)), last);
  return static_cast<Float>(above.is_negative ? -rounded : rounded);
}

template float RoundQuotient<float>(const ExactDigits&, const ExactDigits&);
template double RoundQuotient<double>(const ExactDigits&, const ExactDigits&);

}  // namespace sheaf
