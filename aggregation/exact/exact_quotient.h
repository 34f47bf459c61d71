// RoundQuotient: the quotient of two exact numbers, rounded once, half to even.
//
//   ExactDigits three, two;
//   three.Add(3.0);
//   two.Add(2.0);
//   double quotient = RoundQuotient<double>(three, two);   // 1.5
//
// The first 64 bits of both decide nearly always; where they leave the quotient too close to the middle between two
// floats, that middle times the divisor is compared with the dividend, digit by digit, so that the answer is right for
// any numbers. No memory is allocated; a call takes some 50 ns, a comparison some 100 ns more. Value types.
#pragma once

#include <array>
#include <cstdint>

namespace sheaf {

// A number as the sum of digits[k] * 2^(32 * (k - kPoint)). Digits may have any sign; none may leave 62 bits.
struct ExactDigits {
  static constexpr int kPoint = 42;
  static constexpr int kDigits = 2 * kPoint + 1;
  std::array<int64_t, kDigits> digits = {};
  // Outside all are 0.
  int begin = kDigits;
  int end = 0;

  // Adds a finite double.
  void Add(double value);
  // Adds digit * 2^exponent. The exponent is a multiple of 32, -1280 <= exponent <= 1280.
  void AddDigit(int exponent, int64_t digit);
};

// dividend / divisor; the divisor is > 0. Subnormals are rounded at their own precision; beyond the largest finite
// number the quotient is an infinity; a negative one that rounds to zero is -0, an exact zero is +0.
template <typename Float>
Float RoundQuotient(const ExactDigits& dividend, const ExactDigits& divisor);

}  // namespace sheaf
