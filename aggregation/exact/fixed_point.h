// FixedPoint: a plain two's-complement number of 2624 bits, the lowest worth 2^-1344. The oracle's arithmetic: slow
// and obvious. It holds any sum of fewer than 2^63 products of a double and a float, exactly. Not used to serve rounds.
//
//   FixedPoint sum;
//   sum.AddProduct(0.1, 3.0f);
//   float rounded = sum.ToFloat();   // Half to even.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace sheaf {

class FixedPoint {
 public:
  // Both finite.
  void AddProduct(double value, float weight);
  double ToDouble() const;
  float ToFloat() const;
  // this / divisor, rounded once. divisor > 0.
  double QuotientToDouble(const FixedPoint& divisor) const;
  float QuotientToFloat(const FixedPoint& divisor) const;

 private:
  static constexpr int kLimbs = 41;
  static constexpr int kPoint = 1344;

  // Bit `position` of the number, 0 being the lowest.
  bool Bit(int position) const { return (limbs_[static_cast<size_t>(position / 64)] >> (position % 64) & 1) != 0; }
  // Adds digit * 2^(64 * limb), carrying or borrowing upwards.
  void AddLimb(int limb, uint64_t digit);
  void SubtractLimb(int limb, uint64_t digit);
  FixedPoint Negated() const;
  FixedPoint Doubled() const;
  bool IsLess(const FixedPoint& other) const;
  // Of the leading bit; -1 for zero.
  int TopBit() const;
  // The quotient to `precision` bits, none of them below 2^lowest.
  double Quotient(const FixedPoint& divisor, int precision, int lowest) const;
  // To `precision` bits, none of them below 2^lowest.
  double Round(int precision, int lowest) const;

  std::array<uint64_t, kLimbs> limbs_ = {};
};

}  // namespace sheaf
