// The inner loops of ExactBlock: plain, branch-free, vectorised by the compiler (this file's source is built with -O3).
#pragma once

#include <cstdint>

#include "aggregation/exact/float_range.h"

namespace sheaf {

// What some floats span.
FloatRange ScanFloats(const char* values, int n);
// Of doubles with at most `precision` significant bits.
FloatRange ScanDoubles(const double* values, int n, int precision);

// sums[i] = 0 + values[i]: zero loses its sign, and every NaN is the same one.
void SumsOfOne(const char* values, int n, float* sums);
void SumsOfOne(const char* values, int n, double* sums);

// True if all are finite.
bool AllFinite32(const char* values, int64_t n);
bool AllFinite64(const char* values, int64_t n);

// Adds weight * x[i] to bins of which one unit is `unit`, and 2^-32 of it. The product is below 2^51 units in
// magnitude, and an integer number of the lower ones (of `unit`, where there is one bin).
void AddToOneBin(const char* values, int n, float weight, double unit, int64_t* digits);
// The same into digits of any content, as if they were zeros.
void SetOneBin(const char* values, int n, float weight, double unit, int64_t* digits);
void AddToTwoBins(const char* values, int n, float weight, double unit, int64_t* high, int64_t* low);
// rest[i] = scale * x[i].
void Scale(const char* values, int n, double scale, double* rest);
void Scale(const double* values, int n, double scale, double* rest);
// digits[i] = the nearest integer of rest[i]; what is left is multiplied by 2^32.
void CutDigits(double* rest, int n, int64_t* digits);
// Adds the nearest integers of rest to digits; what is left is multiplied by 2^32.
void MoveToBin(double* rest, int n, int64_t* digits);
// True if every nearest integer is 0.
bool RoundsToZero(const double* rest, int n);
void MultiplyByBase(double* rest, int n);
// product[i] + error[i] = values[i] * weight, exactly.
void TwoProduct(const double* values, int n, double weight, double* product, double* error);
// divisors[i] = counts[i], or 1 where that is 0. False, and they are not set right, if a count is over 2^51.
bool CountsToDivisors(const int64_t* counts, int64_t n, double* divisors);
// Whether smallest <= values[i] <= largest for all; smallest and all values are >= 0.
bool AreBetween(const double* values, int n, double smallest, double largest);
// Every bit that one of the values has.
uint64_t UnionOfBits(const double* values, int n);
// The largest |integers[i]|; INT64_MIN does not occur.
int64_t LargestMagnitude(const int64_t* integers, int n);
// Whether all lie in [-2^31, 2^31); |integers| <= 2^62.
bool FitInt32(const int64_t* integers, int n);
// narrow[i] = digits[i], which fit.
void NarrowDigits(const int64_t* digits, int n, int32_t* narrow);
// into[i] += from[i].
void AddIntegers(int64_t* into, const int64_t* from, int n);
// into[at[i]] += from[i], one after the other.
void ScatterIntegers(int64_t* into, const uint32_t* at, const int64_t* from, int n);

// sums[i] = (digits2[i] * 2^64 + digits1[i] * 2^32 + digits0[i]) * unit, rounded once, half to even. |digits0| <= 2^51,
// and so is |digits2 * 2^32 + digits1|; unit is a power of two so that nothing leaves the normal range of a double.
void CombineDigits(const int64_t* digits2, const int64_t* digits1, const int64_t* digits0, int n, double unit,
                   double* sums);
void CombineDigits(const int64_t* digits2, const int64_t* digits1, const int64_t* digits0, int n, double unit,
                   float* sums);
// sums[i] = digits[i] * unit. |digits| <= 2^62.
void ScaleDigits(const int64_t* digits, int n, double unit, double* sums);
void ScaleDigits(const int64_t* digits, int n, double unit, float* sums);
// The same where |digits| <= 2^51, which is faster.
void ScaleSmallDigits(const int64_t* digits, int n, double unit, double* sums);
void ScaleSmallDigits(const int64_t* digits, int n, double unit, float* sums);
// As CombineDigits and ScaleDigits, without rounding: upper[i] + lower[i] is the sum.
void SplitSums(const int64_t* digits2, const int64_t* digits1, const int64_t* digits0, int n, double unit,
               double* upper, double* lower);
void SplitSums(const int64_t* digits, int n, double unit, double* upper, double* lower);

// quotients[i] = (upper[i] + lower[i]) / divisors[i], rounded once, half to even. Divisors have at most 27 significant
// bits; nothing leaves the normal range of a double.
void DivideByFewBits(const double* upper, const double* lower, const double* divisors, int n, float* quotients);
void DivideByFewBits(const double* dividends, const double* divisors, int n, float* quotients);
// The same by divisors that are within 2^-106 of divisors[i] + lower_divisors[i]; exactly divisors[i] where that is 0.
// Where the quotient lies too close to the middle between two floats to be rounded that way, or leaves the range, its
// number is appended to `unsure`; returns how many.
int DivideSums(const double* upper, const double* lower, const double* divisors, const double* lower_divisors, int n,
               double* quotients, int* unsure);
int DivideSums(const double* upper, const double* lower, const double* divisors, const double* lower_divisors, int n,
               float* quotients, int* unsure);

// Into digits below 2^31 in magnitude: into[i] += digits[i] mod 2^bits (of either sign) * 2^(32 - bits), and
// carry[i] += digits[i] / 2^bits. 0 < bits <= 32.
void SplitDigits(const int64_t* digits, int n, int bits, int64_t* into, int64_t* carry);

}  // namespace sheaf
