// ExactBlock: the exact sums of neighbouring elements.
//
// A sum is kept as integer digits in bins at absolute positions: bin k counts units of 2^(32k).
//
//      value  =  ... + digit[1] * 2^32 + digit[0] * 1 + digit[-1] * 2^-32 + digit[-2] * 2^-64 + ...
//
// Adding a number means cutting it into integers, one per bin, and adding integers: nothing is ever rounded, no bin is
// ever dropped, so the digits stand for the true sum in whatever order the numbers came. A block holds only the bins
// that some number touched (two for most tensors). Digits are 64-bit, far wider than 32: carries wait until a bin could
// overflow, which takes at least 2^12 adds. `load` is the bound that says when.
//
//   ExactBlock block(1024);
//   block.AddFloats(0, bytes, 1024, 3.0f);   // += 3 * value, exactly
//   block.Round(0, 1024, floats);            // the only rounding there is
//
// The weighted product of two floats has 48 bits, exact in a double; that of a double and a float has 77, kept as the
// sum of two doubles (or cut as an integer near the ends of the range). Zeros add nothing, whatever their sign; an
// exact zero rounds to +0. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "absl/container/inlined_vector.h"
#include "aggregation/zeroed_pool.h"

namespace sheaf {

class ExactBlock {
 public:
  // Most numbers one call takes.
  static constexpr int kRunMax = 1024;
  // Bins that finite numbers, weighted, summed 2^31 times, can reach. 2^(32 * -39) <= 2^-1223 and 2^1152 < 2^(32 * 37).
  static constexpr int kBinMin = -40;
  static constexpr int kBinMax = 40;

  struct Bin {
    int index = 0;
    // No digit is larger in magnitude.
    int64_t load = 0;
    int64_t* digits = nullptr;
    // Null if a pool owns the digits.
    std::unique_ptr<int64_t[]> owned;
  };

  // Digits come from the pool, which must outlive the block, if there is one.
  explicit ExactBlock(int size, ZeroedPool* pool = nullptr) : size_(size), pool_(pool) {}

  // New elements are zeros.
  void Grow(int size);
  // Adds weight * values[i] to element at + i. Values are little-endian, unaligned; weight is finite and > 0. n <=
  // kRunMax. False, and nothing is added, if a value is not finite.
  bool AddFloats(int at, const char* values, int n, float weight);
  bool AddDoubles(int at, const char* values, int n, float weight);
  // Adds values[i] to element at[i]; elements may repeat. At most `precision` bits of each value are significant.
  bool AddScattered(const uint32_t* at, const double* values, int n, int precision);
  // Adds elements of another block.
  void AddBlock(int at, const ExactBlock& other, int other_at, int n);
  // Adds digits of one bin, as Normalise leaves them.
  void AddDigits(int at, int index, const int32_t* digits, int n);

  // Carries, until every digit lies in [-2^31, 2^31), and forgets bins of zeros: the one canonical form of these sums.
  void Normalise();
  // Zeros; keeps its memory.
  void Clear();

  // The sums of elements at, at + 1, ..., rounded once, half to even; beyond the largest finite number an infinity. n
  // <= kRunMax.
  void Round(int at, int n, double* sums) const;
  void Round(int at, int n, float* sums) const;

  int size() const { return size_; }
  // In ascending order of index.
  std::span<const Bin> bins() const { return bins_; }
  int64_t memory_bytes() const;

 private:
  // The bin's digits; created if need be. The caller adds at most `amount` to each.
  int64_t* Open(int index, int64_t amount);
  Bin& FindBin(int index);
  // Carries if a bin is so full that one more call of Add might overflow it.
  void MakeRoom();
  // Adds rest[i] * 2^(32 * top) to elements at + i, or to at[i] where there are such.
  void AddScaled(int at, const uint32_t* scattered, double* rest, int n, int top, int low, int64_t top_amount);
  bool AddWide(int at, const uint32_t* scattered, const double* values, int n, int precision);
  void AddTerm(int at, bool is_negative, unsigned __int128 magnitude, int exponent);
  void AddOne(int at, double value, uint32_t weight_mantissa, int weight_exponent);
  template <typename Float>
  Float RoundOne(int i) const;
  template <typename Float>
  void RoundTo(int at, int n, Float* sums) const;
  // False if that takes carries, or one element after the other.
  template <typename Float>
  bool RoundFast(int at, int n, Float* sums) const;

  int size_;
  ZeroedPool* pool_;
  // Most blocks have two.
  absl::InlinedVector<Bin, 2> bins_;
};

}  // namespace sheaf
