// ExactBlock: the exact sums of neighbouring elements.
//
// A sum is kept as integer digits in bins at absolute positions: the bin of exponent e counts units of 2^e.
//
//      value  =  digit[-40] * 2^-40 + digit[-8] * 2^-8 + ...         exponents are multiples of 4
//
// Adding a number means cutting it into integers, one per bin, and adding integers: nothing is ever rounded, no bin is
// ever dropped, so the digits stand for the true sum in whatever order the numbers came. Digits have 64 bits and a
// number fills at most 51 of them; where all numbers of a run fit between a bin's unit and 2^51 units, as those of most
// tensors do, one bin takes them and nothing is cut at all. Others go to two or three bins, 32 bits apart. Carries wait
// until a bin could overflow, which takes at least 2^10 adds; `load` is the bound that says when.
//
// Which bins there are depends on what came, and in which order; what they add up to does not. Normalise gives the one
// canonical form: bins at multiples of 32, digits of 32 bits. A block that was sent numbers of ever other sizes, so
// that it has more bins than the canonical form of their range could have, goes over to it and opens no others from
// then on: numbers of all magnitudes take 13 bins (FLOAT32, unweighted) or 71 (FLOAT64), in whatever order they come.
//
//   ExactBlock block(1024);
//   block.AddFloats(0, bytes, 1024, 3.0f);   // += 3 * value, exactly
//   float sums[1024];
//   block.Round(0, 1024, sums);              // the only rounding there is
//
// Bins at absolute positions, and cutting numbers into them by adding a constant, are ReproBLAS's (Demmel and Nguyen,
// Parallel reproducible summation, IEEE Transactions on Computers, 2015; Ahrens, Demmel and Nguyen, Algorithms for
// efficient reproducible floating point summation, ACM TOMS, 2020). It keeps the few bins below the largest number, as
// floats, and drops the others: its sums do not depend on the order, and are not exact. Here no bin is dropped, as in
// a long accumulator (Kulisch); that there is room for 2^10 numbers before a carry is what makes it as fast.
//
// The weighted product of two floats has 48 bits, exact in a double; that of a double and a float has 77, kept as the
// sum of two doubles (or cut as an integer near the ends of the range). Zeros add nothing, whatever their sign; an
// exact zero rounds to +0. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "aggregation/exact/exact_divisor.h"
#include "aggregation/exact/exact_kernels.h"
#include "aggregation/exact/exact_quotient.h"
#include "aggregation/memory/zeroed_pool.h"

namespace sheaf {

class ExactBlock {
 public:
  // Most numbers one call takes.
  static constexpr int kRunMax = 1024;
  // Exponents that finite numbers, weighted, summed 2^31 times, can reach: 2^-1280 <= 2^-1223 and 2^1152 < 2^1184.
  static constexpr int kExponentMin = -1280;
  static constexpr int kExponentMax = 1280;
  // Of the canonical form.
  static constexpr int kDigitBits = 32;

  struct Bin {
    int exponent = 0;
    // No digit is larger in magnitude.
    int64_t load = 0;
    int64_t* digits = nullptr;
    // Null if a pool owns the digits.
    std::unique_ptr<int64_t[]> owned;
  };

  // Digits come from the pool, which must outlive the block, if there is one.
  explicit ExactBlock(int size, ZeroedPool* pool = nullptr) : size_(size), pool_(pool) {}

  // One that is in the canonical form but for its carries, whatever is added.
  static ExactBlock WithCanonicalBins(int size) {
    ExactBlock block(size);
    block.is_canonical_ = true;
    return block;
  }

  // One whose only bin is of digits that are somebody else's and that no load exceeds: to be read, not added to.
  static ExactBlock OfOneBin(int size, int exponent, int64_t load, const int64_t* digits);
  // The exponent of a bin that takes numbers below 2^top that are multiples of 2^low, whole; with room for larger ones
  // to come, if that is possible. A multiple of 4. Nothing if they span too much.
  static std::optional<int> OneBinExponent(int top, int low);
  // Whether a bin of this exponent takes such numbers; it grows by at most kOneBinAmount then.
  static bool OneBinTakes(int exponent, int top, int low) { return top - exponent <= kTopBits && exponent <= low; }
  static constexpr int64_t kOneBinAmount = (int64_t{1} << 51) + 1;

  // New elements are zeros.
  void Grow(int size);
  // Adds weight * values[i] to element at + i. Values are little-endian, unaligned; weight is finite and > 0. n <=
  // kRunMax. False, and nothing is added, if a value is not finite.
  bool AddFloats(int at, const char* values, int n, float weight);
  // The same of values of which it is known what they span.
  bool AddFloats(int at, const char* values, int n, float weight, const FloatRange& range);
  bool AddDoubles(int at, const char* values, int n, float weight);
  // Adds values[i] to element at[i]; elements may repeat. At most `precision` bits of each value are significant.
  bool AddScattered(const uint32_t* at, const double* values, int n, int precision);
  // Has the memory of these elements fetched.
  void Prefetch(int at, int n) const;
  // Adds elements of another block.
  void AddBlock(int at, const ExactBlock& other, int other_at, int n);
  // Adds digits of one bin, as Normalise leaves them.
  void AddDigits(int at, int exponent, const int32_t* digits, int n);

  // The canonical form of these sums: exponents are multiples of 32, every digit lies in [-2^31, 2^31). Bins may be all
  // zeros.
  void Normalise();
  // Zeros; keeps its memory.
  void Clear();

  // The sums of elements at, at + 1, ..., rounded once, half to even; beyond the largest finite number an infinity. n
  // <= kRunMax.
  void Round(int at, int n, double* sums) const;
  void Round(int at, int n, float* sums) const;
  // The same sums divided, without rounding them first; rounded once, half to even. There are divisors.
  void Divide(int at, int n, const ExactDivisors& divisors, double* quotients) const;
  void Divide(int at, int n, const ExactDivisors& divisors, float* quotients) const;
  // Sets the divisors of sums to, to + 1, ... to these sums, which must be > 0 for that. The columns `upper` and
  // `lower` are there; `whole` is made when it is needed.
  void ToDivisors(int at, int n, int64_t to, ExactDivisorColumns& divisors) const;

  // At most so many bins are opened by one call that adds numbers below 2^top that are multiples of 2^low; and one more
  // in a thousand calls, for what they carry. Together: kFew numbers or more, which lie far from the ends of the range.
  static int NewBinsMax(int top, int low);
  // The same of any number of calls that add them one by one, each of at most `precision` significant bits.
  static int NewBinsOfSinglesMax(int top, int low, int precision);
  // Below this many elements, cutting one by one beats setting up the loops.
  static constexpr int kFew = 8;

  int size() const { return size_; }
  // weight is a multiple of 2^low, and at most 2^top.
  struct WeightRange {
    uint32_t mantissa;
    int low;
    int top;
  };
  static WeightRange RangeOfWeight(float weight);

  // In ascending order of exponent.
  std::span<const Bin> bins() const { return bins_; }
  int64_t memory_bytes() const;

 private:
  // The bins a run of numbers goes to: `num_bins` of them, 32 apart, from exponent `top` downwards.
  struct Target {
    int top = 0;
    int num_bins = 1;
    // The most that one number adds to the top bin.
    int64_t top_amount = 0;
  };

  // Where numbers go that are below 2^top in magnitude and multiples of 2^low. A new bin's exponent is a multiple of
  // `step` where it can be.
  Target Choose(int top, int low, int step) const;
  // The bin's digits; created if need be. The caller adds at most `amount` to each.
  int64_t* Open(int exponent, int64_t amount);
  // Of a bin that is gone.
  void GiveBack(const Bin& bin);
  Bin& FindBin(int exponent);
  // One number adds at most 2^51 to a digit: what the kernels' magic number can round.
  static constexpr int kTopBits = 51;
  // Makes sure that no bin overflows in one more call of Add, and that there are not too many.
  void MakeRoom();
  // Goes over to canonical bins for good, if there are more than those could be. So many bins may lie anywhere.
  static constexpr size_t kFreeBins = 3;
  bool MayHaveManyBins() const { return bins_.size() > kFreeBins && !is_canonical_; }
  void LimitBins();
  // Adds digits of a bin to those at multiples of 32 around it.
  void AddCut(int at, int exponent, const int64_t* digits, int n);
  // Moves what is beyond 32 bits to the bin above.
  void Carry(int exponent);
  // Adds rest[i] * 2^target.top to elements at + i, or to at[i] where there are such.
  void AddScaled(int at, const uint32_t* scattered, double* rest, int n, const Target& target);
  bool AddWide(int at, const uint32_t* scattered, const double* values, int n, int precision);
  void AddTerm(int at, bool is_negative, unsigned __int128 magnitude, int exponent);
  void AddOne(int at, double value, uint32_t weight_mantissa, int weight_exponent);
  // Of a block in canonical form.
  template <typename Float>
  Float RoundOne(int i) const;
  template <typename Float>
  void RoundTo(int at, int n, Float* sums) const;
  // False if that takes carries, or one element after the other.
  template <typename Float>
  bool RoundFast(int at, int n, Float* sums) const;
  // upper[i] + lower[i] is the sum, or upper[i] is, and `lower` is not set; kNone as RoundFast.
  enum class Split { kNone, kUpper, kBoth };
  Split SplitFast(int at, int n, double* upper, double* lower) const;
  // The digits of neighbouring bins that RoundFast and SplitFast take: of one bin, or of up to three, zeros where there
  // is none. Nothing if there are others, or digits too large.
  struct FastDigits {
    bool is_one_bin = false;
    // Of one bin, and no digit is over 2^51.
    bool fits_double = false;
    const int64_t* digits[3];
    int exponent = 0;
  };
  std::optional<FastDigits> FindFastDigits(int at, int n) const;
  // This block in canonical form.
  ExactBlock Canonical(int at, int n) const;
  // Of a block in canonical form.
  ExactDigits DigitsOf(int i) const;
  static ExactDigits WholeOf(const ExactDivisor& divisor);
  template <typename Float>
  void DivideTo(int at, int n, const ExactDivisors& divisors, Float* quotients) const;

  // Most blocks have one. First, so that it lies in one cache line, which is all that most calls touch.
  absl::InlinedVector<Bin, 2> bins_;
  int size_;
  // Opens bins at multiples of 32 only.
  bool is_canonical_ = false;
  ZeroedPool* pool_;
};

}  // namespace sheaf
