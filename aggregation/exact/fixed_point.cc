#include "aggregation/exact/fixed_point.h"

#include <algorithm>
#include <cmath>

// Why 2624 bits do. A product that is not zero is a multiple of 2^-1074 * 2^-149 = 2^-1223, which is above the lowest
// bit, 2^-1344; and it is below 2^1024 * 2^128 = 2^1152, so that 2^63 of them stay below 2^1215, and the sign's bit
// stands for 2^1279. Nothing is ever rounded but in Round and Quotient.

namespace sheaf {

void FixedPoint::AddProduct(double value, float weight) {
  if (value == 0 || weight == 0) return;
  int value_exponent = 0, weight_exponent = 0;
  const double value_fraction = std::frexp(std::fabs(value), &value_exponent);
  const float weight_fraction = std::frexp(std::fabs(weight), &weight_exponent);
  // frexp gives fractions of [0.5, 1): 53 bits and 24, also of subnormals, whose last bits are then zeros.
  const auto value_integer = static_cast<uint64_t>(std::ldexp(value_fraction, 53));
  const auto weight_integer = static_cast<uint64_t>(std::ldexp(weight_fraction, 24));
  const unsigned __int128 product = static_cast<unsigned __int128>(value_integer) * weight_integer;
  // The product has at most 77 bits, and its last stands here: kPoint - 1073 - 53 - 148 - 24 = 46 at least.
  const int position = kPoint + value_exponent - 53 + weight_exponent - 24;
  const bool is_negative = std::signbit(value) != std::signbit(weight);
  for (int bit = 0; bit < 96; bit += 32) {
    const uint64_t digit = static_cast<uint32_t>(product >> bit);
    if (digit == 0) continue;
    const int at = position + bit;
    const unsigned __int128 placed = static_cast<unsigned __int128>(digit) << (at % 64);
    for (int limb = 0; limb < 2; ++limb) {
      const uint64_t part = static_cast<uint64_t>(placed >> (64 * limb));
      is_negative ? SubtractLimb(at / 64 + limb, part) : AddLimb(at / 64 + limb, part);
    }
  }
}

void FixedPoint::AddLimb(int limb, uint64_t digit) {
  for (size_t i = static_cast<size_t>(limb); i < kLimbs && digit != 0; ++i) {
    limbs_[i] += digit;
    digit = limbs_[i] < digit ? 1 : 0;
  }
}

void FixedPoint::SubtractLimb(int limb, uint64_t digit) {
  for (size_t i = static_cast<size_t>(limb); i < kLimbs && digit != 0; ++i) {
    const bool borrows = limbs_[i] < digit;
    limbs_[i] -= digit;
    digit = borrows ? 1 : 0;
  }
}

// Two's complement: all bits the other way, and one more.
FixedPoint FixedPoint::Negated() const {
  FixedPoint negated;
  for (size_t i = 0; i < kLimbs; ++i) negated.limbs_[i] = ~limbs_[i];
  negated.AddLimb(0, 1);
  return negated;
}

double FixedPoint::Round(int precision, int lowest) const {
  // Half to even has no sides: of a negative number the magnitude is rounded.
  if (limbs_.back() >> 63 != 0) return -Negated().Round(precision, lowest);
  const int top = TopBit();
  if (top < 0) return 0;
  // The last bit kept, the one below it that decides, and whether anything lies below that.
  const int last = std::max(top - precision + 1, kPoint + lowest);
  double kept = 0;
  for (int position = top; position >= last; --position) kept = 2 * kept + (Bit(position) ? 1 : 0);
  const bool half = last > 0 && Bit(last - 1);
  bool below = false;
  for (int position = 0; position < last - 1 && !below;) {
    const bool whole_limb = position % 64 == 0 && position + 64 <= last - 1;
    below = whole_limb ? limbs_[static_cast<size_t>(position / 64)] != 0 : Bit(position);
    position += whole_limb ? 64 : 1;
  }
  if (half && (below || Bit(last))) kept += 1;
  return std::ldexp(kept, last - kPoint);
}

int FixedPoint::TopBit() const {
  int top_limb = kLimbs - 1;
  while (top_limb >= 0 && limbs_[static_cast<size_t>(top_limb)] == 0) --top_limb;
  if (top_limb < 0) return -1;
  int top = 64 * top_limb + 63;
  while (!Bit(top)) --top;
  return top;
}

FixedPoint FixedPoint::Doubled() const {
  FixedPoint doubled;
  for (size_t i = 0; i < kLimbs; ++i) doubled.limbs_[i] = limbs_[i] << 1 | (i > 0 ? limbs_[i - 1] >> 63 : 0);
  return doubled;
}

// Of numbers that are not negative.
bool FixedPoint::IsLess(const FixedPoint& other) const {
  return std::lexicographical_compare(limbs_.rbegin(), limbs_.rend(), other.limbs_.rbegin(), other.limbs_.rend());
}

// As on paper: is the divisor, 2^k times, in what is left? The numbers are moved apart so that k counts down from 0.
double FixedPoint::Quotient(const FixedPoint& divisor, int precision, int lowest) const {
  if (limbs_.back() >> 63 != 0) return -Negated().Quotient(divisor, precision, lowest);
  if (TopBit() < 0) return 0;
  FixedPoint rest = *this, part = divisor;
  // The quotient lies between 2^(exponent - 1) and 2^(exponent + 1). The larger of the two numbers leaves room to
  // double what is left.
  int exponent = TopBit() - divisor.TopBit();
  for (int i = 0; i < exponent; ++i) part = part.Doubled();
  for (int i = 0; i > exponent; --i) rest = rest.Doubled();
  if (rest.IsLess(part)) --exponent, rest = rest.Doubled();
  // Now part <= rest < 2 * part, and the quotient is rest / part * 2^exponent: its leading bit is at `exponent`. Each
  // step finds one bit, and leaves rest < 2 * part again.
  const int last = std::max(exponent - precision + 1, lowest);
  double kept = 0;
  bool half = false;
  for (int bit = exponent; bit >= last - 1; --bit) {
    const bool is_in = !rest.IsLess(part);
    if (is_in) {
      const FixedPoint negative = part.Negated();
      for (size_t i = 0; i < kLimbs; ++i) rest.AddLimb(static_cast<int>(i), negative.limbs_[i]);
    }
    if (bit >= last) kept = 2 * kept + (is_in ? 1 : 0);
    if (bit == last - 1) half = is_in;
    rest = rest.Doubled();
  }
  // Far below the lowest bit no half was looked at: there is none.
  const bool below = rest.TopBit() >= 0;
  if (half && (below || std::fmod(kept, 2) == 1)) kept += 1;
  return std::ldexp(kept, last);
}

double FixedPoint::QuotientToDouble(const FixedPoint& divisor) const { return Quotient(divisor, 53, -1074); }
float FixedPoint::QuotientToFloat(const FixedPoint& divisor) const {
  return static_cast<float>(Quotient(divisor, 24, -149));
}

double FixedPoint::ToDouble() const { return Round(53, -1074); }
float FixedPoint::ToFloat() const { return static_cast<float>(Round(24, -149)); }

}  // namespace sheaf
