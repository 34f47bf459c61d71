// The inner loops of ExactBlock: plain, branch-free, vectorised by the compiler (this file's source is built with -O3).
#pragma once

#include <cstdint>

namespace sheaf {

// Bounds on the magnitudes of some floats: every |x| < 2^top, and each is a multiple of 2^low.
struct FloatRange {
  bool is_all_zero = true;
  int top = 0;
  int low = 0;
};
FloatRange ScanFloats(const char* values, int n);

// True if all are finite.
bool AllFinite32(const char* values, int64_t n);
bool AllFinite64(const char* values, int64_t n);

// digits[i] += scale * x[i], which is an integer below 2^51 in magnitude.
void AddToOneBin(const char* values, int n, double scale, int64_t* digits);
// As above, but what is left of the nearest integer goes on, times 2^32, to `low`; there it is an integer.
void AddToTwoBins(const char* values, int n, double scale, int64_t* high, int64_t* low);
// rest[i] = scale * x[i].
void Scale(const char* values, int n, double scale, double* rest);
// Moves the nearest integers of rest to digits; what is left is multiplied by 2^32.
void MoveToBin(double* rest, int n, int64_t* digits);
// True if every nearest integer is 0.
bool RoundsToZero(const double* rest, int n);
void MultiplyByBase(double* rest, int n);
// into[i] += from[i].
void AddIntegers(int64_t* into, const int64_t* from, int n);

}  // namespace sheaf
